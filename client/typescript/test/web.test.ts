/** The browser's transport, by a gateway beside the live server. */

import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { createServer } from "node:net";
import { after, before, test } from "node:test";
import { connect, GradwireConnectionError, GradwireIndexError, Reason, type Session } from "../src/web.js";
import { ADDRESS, NO_SERVER, PACKAGE } from "./support.js";

const PYTHON = process.env["GRADWIRE_PYTHON"] ?? "";
const NO_GATEWAY =
  NO_SERVER ||
  (PYTHON ? false : "needs Python with gradwire[web]: set GRADWIRE_PYTHON, or run make test-sdks") ||
  (typeof WebSocket === "function" ? false : "needs a global WebSocket: Node 22, or --experimental-websocket");

let gateway: ChildProcess | undefined;
let address = "";

/** A port of this machine that was free a moment ago. */
function freePort(): Promise<number> {
  return new Promise((resolve) => {
    const listening = createServer().listen(0, "127.0.0.1", () => {
      const found = listening.address();
      listening.close(() => resolve(found && typeof found === "object" ? found.port : 0));
    });
  });
}

before(async () => {
  if (NO_GATEWAY) return;
  const port = await freePort();
  address = `http://127.0.0.1:${port}`;
  const studio = "from gradwire_server.app.studio import studio; studio(prog_name='gradwire studio')";
  const command = ["-c", studio, ADDRESS, "--web", String(port)];
  gateway = spawn(PYTHON, command, { cwd: PACKAGE, stdio: ["ignore", "ignore", "inherit"] });
  for (let tries = 0; tries < 300; tries++) {
    const answer = await fetch(`${address}/healthz`).catch(() => undefined);
    if (answer?.ok) return;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  throw new Error("the gateway does not answer");
});

after(() => {
  gateway?.kill();
});

function withSession(f: (session: Session) => Promise<void>): () => Promise<void> {
  return async () => {
    const session = await connect(address);
    await f(session);
    await session.close();
  };
}

test(
  "a gradient from a browser",
  { skip: NO_GATEWAY },
  withSession(async (session) => {
    const a = session.tensor([1, 2, 3], { requiresGrad: true });
    await a.mul(a).sum().backward();
    assert.deepEqual(await a.grad.array(), [2, 4, 6]);
  }),
);

test(
  "a loop in a browser",
  { skip: NO_GATEWAY },
  withSession(async (session) => {
    const w = session.tensor(0);
    for (let count = 0; count < 2000; count++) w.add_(1);
    assert.equal(await w.item(), 2000);
  }),
);

test(
  "a refusal in a browser",
  { skip: NO_GATEWAY },
  withSession(async (session) => {
    const a = session.tensor([1, 2, 3]);
    await assert.rejects(a.index(7).read(), (error) => {
      assert.ok(error instanceof GradwireIndexError);
      assert.equal(error.reason, Reason.INDEX_OUT_OF_RANGE);
      assert.match(error.message, /index 7 is out of bounds for dimension 0 with size 3/);
      return true;
    });
    assert.deepEqual(await a.array(), [1, 2, 3]);
  }),
);

test(
  "large values in a browser",
  { skip: NO_GATEWAY },
  withSession(async (session) => {
    const values = Float32Array.from({ length: 1_000_000 }, (_, place) => place % 251);
    const found = await session.tensor(values).add(1).data();
    assert.equal(found.length, values.length);
    assert.ok(found.every((value, place) => value === (place % 251) + 1));
  }),
);

test("no gateway", async () => {
  await assert.rejects(connect("http://127.0.0.1:1", { patience: 0.1 }), GradwireConnectionError);
});
