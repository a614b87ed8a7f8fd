// Sharing: which lesson or which code an address names. Code is compressed into the part after "#", which a browser
// never sends to a server. Code from an address is shown first; it runs after a click.
import { MOST_CODE } from "./parse";

export type Named = { lesson: string } | { code: string } | null;

const START = "#/playground/";
const MOST_PACKED = 30_000; // characters of an address that are read

/** The address of a lesson. */
export const addressOfLesson = (name: string): string => `${START}lesson/${name}`;

/** The address of code. */
export async function addressOfCode(code: string): Promise<string> {
  const stream = new Blob([code]).stream().pipeThrough(new CompressionStream("deflate-raw"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const text = btoa(Array.from(bytes, (each) => String.fromCharCode(each)).join(""));
  return `${START}code/${text.replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "")}`;
}

/** What an address names: a lesson, code, or nothing. Throws an Error with a sentence if the code cannot be read. */
export async function named(hash: string): Promise<Named> {
  const lesson = /^#\/playground\/lesson\/([a-z-]{1,40})$/.exec(hash)?.[1];
  if (lesson) return { lesson };
  const packed = /^#\/playground\/code\/([\w-]+)$/.exec(hash)?.[1];
  return packed === undefined ? null : { code: await unpacked(packed) };
}

async function unpacked(packed: string): Promise<string> {
  try {
    if (packed.length > MOST_PACKED) throw new Error("too long");
    const bytes = Uint8Array.from(atob(packed.replaceAll("-", "+").replaceAll("_", "/")), (each) => each.charCodeAt(0));
    const reader = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw")).getReader();
    const text = new TextDecoder("utf-8", { fatal: true });
    let code = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return code + text.decode();
      code += text.decode(value, { stream: true });
      if (code.length > MOST_CODE) {
        await reader.cancel();
        throw new Error("too long");
      }
    }
  } catch {
    throw new Error("The code of this link cannot be read: the link is incomplete or too long.");
  }
}
