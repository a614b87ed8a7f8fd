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
const programs = read(new URL("../../../../tests/studio/programs.json", import.meta.url));
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

describe("a hostile program is bounded", () => {
  test.each([
    ["a list in itself", "a = []\na.append(a)\nprint(a)", "", "[[...]]"],
    ["lists that double", "a = [1]\nfor i in range(60):\n    a = [a, a]\nprint(a == [a, a])", "", "False"],
    [
      "a comparison that doubles",
      "a = [1]\nb = [1]\nfor i in range(40):\n    a = [a, a]\n    b = [b, b]\nprint(a == b)",
      "steps",
      "",
    ],
    ["a tensor of a list in itself", "a = []\na.append(a)\ntorch.tensor(a)", "too many dimensions", ""],
    ["large integers", "a = 10 ** 10 ** 10", "OverflowError", ""],
    ["a long string", "a = 'x' * 10 ** 9", "MemoryError", ""],
    ["an integer of a large float", "a = int(1e30)", "OverflowError", ""],
    ["a negated least integer", "a = -(-(2 ** 62) * 2)", "OverflowError", ""],
    ["a list that doubles", "a = [1]\nfor i in range(60):\n    a += a", "MemoryError", ""],
    ["a text that doubles", "a = 'x'\nfor i in range(60):\n    a = f'{a}{a}'", "MemoryError", ""],
    ["a list of long texts", "a = ['x' * 100_000] * 2000\nb = str(a)\nassert len(b) < 400_000", "", ""],
    ["endless recursion", "f = lambda x: f(x)\nf(1)", "RecursionError", ""],
    ["many bytes", "a = [torch.zeros(1 << 20) for i in range(30)]", "hold more than 64 MiB", ""],
    ["much output", "for i in range(500):\n    print('x' * 1000)", "", undefined],
  ])("%s", async (_, code, error, printed) => {
    const found = await answered(code);
    expect(found.error?.text ?? "").toContain(error);
    if (error === "") expect(found.error).toBeNull();
    if (printed !== undefined) expect(found.printed.trim()).toContain(printed);
    expect(found.printed.length).toBeLessThan(300_000);
  });

  test("a loop keeps what a function inside a function uses", async () => {
    const code = "def f():\n  a = torch.ones(2)\n  def g():\n    return lambda: a + 1\n  return g()\n";
    const loop = "for i in range(3):\n  h = f()\n  for j in range(2):\n    k = f()\nprint(h(), k())";
    expect((await answered(code + loop)).printed).toBe("tensor([2., 2.]) tensor([2., 2.])\n");
  });

  test("a run after one that was refused begins anew", async () => {
    await answered("torch.manual_seed(7)\nwith torch.no_grad():\n    x = torch.ones(2) @ torch.ones(3)");
    expect((await answered("print(torch.is_grad_enabled(), x)")).error?.text).toBe(
      "NameError: name 'x' is not defined.",
    );
    expect((await answered("a = torch.ones(1, requires_grad=True)\nprint((a * 2).requires_grad)")).printed).toBe(
      "True\n",
    );
  });

  test("a session that is gone is opened again", async () => {
    await answered("x = 1");
    await server.call("CloseSession", { sessionId: workspace.sessionId });
    expect((await answered("print(torch.ones(2))")).printed).toBe("tensor([1., 1.])\n");
  });

  test("of runs that follow each other fast, the last one tells its result", async () => {
    const runs = await Promise.all(["1", "2", "3"].map((each) => workspace.run(`a = torch.ones(2)\nprint(${each})`)));
    expect(runs.map((each) => each?.notes.find((note) => note.kind === "printed")?.text)).toEqual([
      undefined,
      undefined,
      "3",
    ]);
  });
});
