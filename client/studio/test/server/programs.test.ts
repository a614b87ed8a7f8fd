// The playground's language against PyTorch's answers, with a live server: what programs print, and how they are refused.
import { readFileSync } from "node:fs";
import { createClient } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-web";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { WebSocket as NodeSocket } from "ws";
import { AutogradService } from "#contract/service_pb";
import { connect } from "#sdk/web";
import { Catalogue } from "../../src/playground/catalogue";
import { type Connect, Workspace } from "../../src/playground/workspace";
import { Server } from "../browser/world";

interface Program {
  name: string;
  code: string;
  printed: string;
  error: { type: string; message: string; line: number } | null;
}
const read = (path: string | URL) => JSON.parse(readFileSync(path, "utf8")) as Program[];
const programs = read(new URL("programs.json", import.meta.url));
const drawn = process.env.STUDIO_PROGRAMS ? read(process.env.STUDIO_PROGRAMS) : [];

let server: Server;
let workspace: Workspace;
let connecting: Connect;
beforeAll(async () => {
  server = await Server.start();
  const address = server.url.replace(/\/$/, "");
  const transport = createConnectTransport({
    baseUrl: address,
    useBinaryFormat: true,
    interceptors: [
      (next) => (request) => {
        request.header.set("authorization", `Bearer ${server.alice}`);
        return next(request);
      },
    ],
  });
  connecting = async () => {
    const { ops } = await createClient(AutogradService, transport).listOps({});
    const socket = NodeSocket as unknown as typeof WebSocket;
    const session = await connect(server.url, { token: server.alice, WebSocket: socket, patience: 5 });
    return { session, catalogue: new Catalogue(ops) };
  };
  workspace = new Workspace(connecting);
}, 90_000);
afterAll(async () => {
  await workspace?.close();
  await server?.close();
});

/** What a program printed, and its error, as PyTorch's answer has them. */
async function answered(code: string) {
  const result = await workspace.run(code);
  if (!result) throw new Error("the run was stopped");
  const printed = result.notes.filter((each) => each.kind === "printed").map((each) => `${each.text}\n`);
  const error = result.notes.find((each) => each.kind === "error");
  return { printed: printed.join(""), error: error ? { line: error.line, text: error.text } : null };
}

/** PyTorch's sentence up to its first full stop; what follows are hints about other tools. */
const sentence = (text: string) => text.split("\n")[0]?.split(/\. |\.$/)[0];

describe("programs print what PyTorch prints", () => {
  test.each(programs)("$name", async ({ code, printed, error }) => {
    const found = await answered(code);
    expect(found.printed).toBe(printed);
    expect(found.error?.line).toBe(error?.line);
    if (error) expect(found.error?.text).toContain(sentence(`${error.type}: ${error.message}`));
  });
  test.each(drawn)("$name", async ({ code, printed, error }) => {
    const found = await answered(code);
    expect(found.printed, code).toBe(printed);
    expect(found.error?.line, code).toBe(error?.line);
  });
});
