/** How a session finds its server: TLS, tokens and several addresses. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import {
  type ConnectOptions,
  connect,
  GradwireConnectionError,
  type GradwireError,
  GradwirePermissionError,
  GradwireValueError,
  Reason,
} from "../src/node.js";
import { ADDRESS, NO_SERVER } from "./support.js";

const SECURE = process.env["GRADWIRE_SECURE"] ?? "";
const CA = process.env["GRADWIRE_SECURE_CA"] ?? "";
const OTHER_CA = process.env["GRADWIRE_SECURE_OTHER_CA"] ?? "";
const TOKEN = process.env["GRADWIRE_SECURE_TOKEN"] ?? "";
const MOVING = process.env["GRADWIRE_MOVING"] ?? "";
const NO_MOVING = "needs a server whose sessions move: run make test-sdks";
const secure = { skip: SECURE ? false : "needs a server with TLS: run make test-sdks" };

async function sum(address: string | string[], options: ConnectOptions = {}): Promise<number> {
  await using session = await connect(address, options);
  return session.tensor([1, 2]).sum().item();
}

/** What connecting throws. It must come soon, not after the session's patience. */
async function refused(address: string, options: ConnectOptions = {}): Promise<GradwireError> {
  try {
    await sum(address, options);
  } catch (thrown) {
    return thrown as GradwireError;
  }
  return assert.fail("it connected");
}

test("the right authority and token", secure, async () => {
  assert.equal(await sum(SECURE, { ca: CA, token: TOKEN }), 3);
  assert.equal(await sum(SECURE, { ca: readFileSync(CA), token: TOKEN }), 3);
});

test("a server's certificate that is not trusted", secure, async () => {
  for (const options of [{ ca: OTHER_CA }, { tls: true }, { ca: CA, serverName: "example.org" }]) {
    const error = await refused(SECURE, { ...options, token: TOKEN });
    assert.ok(error instanceof GradwireConnectionError);
    assert.match(error.message, /certificate is not trusted: pass the PEM file of the authority .* as `ca`/);
  }
});

test("a missing and a wrong token", secure, async () => {
  const missing = await refused(SECURE, { ca: CA });
  assert.ok(missing instanceof GradwirePermissionError);
  assert.equal(missing.reason, Reason.UNAUTHENTICATED);
  assert.match(missing.message, /No token was given: pass `token`/);
  const wrong = await refused(SECURE, { ca: CA, token: `${TOKEN}x` });
  assert.ok(wrong instanceof GradwirePermissionError);
  assert.match(wrong.message, /unknown to this server, or has expired/);
  const odd = await refused(SECURE, { ca: CA, token: "to\nken" });
  assert.ok(odd instanceof GradwireValueError);
  assert.doesNotMatch(odd.message, /to\nken/);
});

test("TLS on one side only", secure, async () => {
  const plain = await refused(SECURE, { token: TOKEN });
  assert.ok(plain instanceof GradwireConnectionError);
  assert.match(plain.message, /The server seems to use TLS: pass .* as `ca`/);
  const encrypted = await refused(ADDRESS, { ca: CA });
  assert.ok(encrypted instanceof GradwireConnectionError);
  assert.match(encrypted.message, /The server seems not to use TLS: remove `ca`/);
});

test("the first of several servers that answers is used", { skip: NO_SERVER }, async () => {
  assert.equal(await sum(["127.0.0.1:1", ADDRESS]), 3);
  assert.equal(await sum(`127.0.0.1:1, ${ADDRESS}`), 3);
});

test("a dead address before a server with TLS", secure, async () => {
  assert.equal(await sum(["127.0.0.1:1", SECURE], { ca: CA, token: TOKEN }), 3);
});

test("a session that moves is followed to its server", { skip: MOVING ? false : NO_MOVING }, async () => {
  await using session = await connect(MOVING, { localStream: false });
  const w = session.tensor(0);
  for (let count = 0; count < 1000; count++) {
    w.add_(1);
    if (count % 50 === 49) await session.room();
  }
  assert.equal(await w.item(), 1000);
  assert.ok(session.reconnects > 0);
  // Transfers are refused by the first server, so these go to the second one.
  assert.equal(
    await session
      .tensor(new Float32Array(1 << 20))
      .add(1)
      .sum()
      .item(),
    1 << 20,
  );
});

test("no server", async () => {
  const error = await refused("127.0.0.1:1", { patience: 0.1 });
  assert.ok(error instanceof GradwireConnectionError);
  assert.match(error.message, /no connection to 127\.0\.0\.1:1: .*ECONNREFUSED.*\n {2}No server listens there: start/);
});

test("addresses that cannot be one", async () => {
  for (const address of ["localhost", "localhost:70000", "http://localhost:50051", ""]) {
    const error = await refused(address);
    assert.ok(error instanceof GradwireValueError, address);
    assert.match(error.message, /give HOST:PORT, as localhost:50051/);
  }
});
