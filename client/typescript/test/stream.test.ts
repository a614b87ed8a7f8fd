/** Streams against a scripted server, which does what a live one does not do on demand. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { create, fromBinary, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { Code, fromStatus, GradwireConnectionError, GradwireError, Reason } from "../src/errors.js";
import {
  type OpenSessionResponse,
  OpenSessionResponseSchema,
  type StreamRequest,
  StreamRequestSchema,
  StreamResponseSchema,
} from "../src/gen/gradwire/v1/service_pb.js";
import { Session, type SessionOptions } from "../src/session.js";
import type { Channel, Receiver } from "../src/transport.js";

/** What a stream of the script can do. */
interface Scripted {
  readonly address: string;
  readonly attempt: number;
  answer(response: MessageInitShape<typeof StreamResponseSchema>): void;
  end(reason: Reason, metadata?: Record<string, string>): void;
}

type Script = (stream: Scripted, message: StreamRequest, bytes: Uint8Array) => void;

const LIMITS = { maxMessageBytes: 1n << 20n, maxInlineBytes: 1n << 16n, maxBatchCommands: 1024n, maxPrepared: 4n };
const OPENED: MessageInitShape<typeof OpenSessionResponseSchema> = {
  ...{ sessionId: "s", writer: 1, epoch: 1n, leaseMs: 60, firstId: 1n, lastId: 1n << 40n, limits: LIMITS },
};

class ScriptedServer {
  calls: string[] = [];
  failures = 0; // of unary calls that are left
  private streams = 0;

  constructor(private readonly script: Script) {}

  open(options: SessionOptions = {}): Promise<Session> {
    return Session.open(["a"], (address) => this.dial(address), options);
  }

  private dial(address: string): Channel {
    const unary = async (method: { name: string }): Promise<OpenSessionResponse> => {
      this.calls.push(method.name);
      if (this.failures-- > 0) throw fromStatus(Code.UNAVAILABLE, "not yet");
      return create(OpenSessionResponseSchema, OPENED);
    };
    const offered = () => false;
    const explained = async (error: GradwireError) => ({ error, final: false });
    const unused = (): never => assert.fail("the script has no transfers");
    const stream = (receiver: Receiver) => this.stream(address, receiver);
    return {
      unary: unary as unknown as Channel["unary"],
      stream,
      upload: unused,
      download: unused,
      offered,
      explained,
      close: () => {},
    };
  }

  private stream(address: string, receiver: Receiver) {
    let open = true;
    const later = (f: () => void): void => {
      setImmediate(() => open && f());
    };
    const scripted: Scripted = {
      address,
      attempt: ++this.streams,
      answer: (response) => {
        later(() => receiver.message(toBinary(StreamResponseSchema, create(StreamResponseSchema, response))));
      },
      end: (reason, metadata = {}) => {
        later(() => {
          open = false;
          receiver.end(new GradwireError("scripted", { reason, code: Code.UNAVAILABLE, metadata }));
        });
      },
    };
    return {
      send: (bytes: Uint8Array) => {
        const message = fromBinary(StreamRequestSchema, bytes);
        // An acknowledgement has no answer.
        if (message.request.case === "attach" || message.request.case === "batch")
          this.script(scripted, message, bytes);
      },
      close: () => {
        open = false;
      },
    };
  }
}

const ATTACHED = { response: { case: "attached" as const, value: { epoch: 1n } } };
const ANSWER = { response: { case: "batch" as const, value: {} } };

/** Queue commands that are never prepared: their index differs. */
function commands(session: Session, count: number): void {
  for (let place = 0; place < count; place++) session.manualSeed(place);
}

test("a batch waits for credit", async () => {
  const credit = 4000;
  let under: number[] = [];
  let most = 0;
  const server = new ScriptedServer((stream, message, bytes) => {
    if (message.request.case === "attach") return stream.answer({ ...ATTACHED, creditBytes: BigInt(credit) });
    under.push(bytes.length);
    most = Math.max(
      most,
      under.reduce((sum, size) => sum + size, 0),
    );
    setTimeout(() => {
      const size = under.shift() ?? 0;
      stream.answer({ ...ANSWER, creditBytes: BigInt(size) });
    }, 2);
  });
  const session = await server.open();
  for (let count = 0; count < 20; count++) {
    commands(session, 64);
    await session.room();
  }
  await session.wait();
  assert.ok(most <= credit + 100 && most > credit / 4, `${most} bytes under way with a credit of ${credit}`);
  under = [];
  await session.close();
});

test("unanswered batches are sent again unchanged", async () => {
  const batches: string[] = [];
  const attempts: number[] = [];
  const server = new ScriptedServer((stream, message, bytes) => {
    if (message.request.case === "attach") {
      attempts.push(message.request.value.attempt);
      return stream.answer({ ...ATTACHED, creditBytes: 1n << 20n });
    }
    batches.push(Buffer.from(bytes).toString("hex"));
    if (stream.attempt === 1) stream.end(Reason.UNSPECIFIED);
    else if (stream.attempt === 2) stream.end(Reason.STREAM_TAKEN);
    else stream.answer(ANSWER);
  });
  const session = await server.open();
  commands(session, 10);
  await session.wait();
  assert.deepEqual(attempts, [1, 2, 3]);
  assert.equal(batches.length, 3);
  assert.equal(new Set(batches).size, 1);
  assert.equal(session.reconnects, 2);
  await session.close();
});

test("a session that moves is followed", async () => {
  const addresses: string[] = [];
  const server = new ScriptedServer((stream, message) => {
    if (message.request.case === "attach") {
      addresses.push(stream.address);
      if (stream.address === "a") return stream.end(Reason.SESSION_MOVED, { endpoint: "b" });
      return stream.answer({ ...ATTACHED, creditBytes: 1n << 20n });
    }
    stream.answer(ANSWER);
  });
  const session = await server.open();
  commands(session, 3);
  await session.wait();
  assert.deepEqual(addresses, ["a", "b"]);
  await session.close();
});

test("forgotten results end the session", async () => {
  const server = new ScriptedServer((stream, message) => {
    if (message.request.case === "attach") stream.answer({ ...ATTACHED, creditBytes: 1n << 20n });
    else stream.end(Reason.RESULT_FORGOTTEN);
  });
  const session = await server.open();
  const forgotten = (error: GradwireError): boolean => error.reason === Reason.RESULT_FORGOTTEN;
  await assert.rejects(session.tensor([1]).read(), forgotten);
  await assert.rejects(session.wait(), forgotten);
  await assert.rejects(session.close(), forgotten);
});

test("patience ends", async () => {
  const server = new ScriptedServer((stream) => stream.end(Reason.UNSPECIFIED));
  const session = await server.open({ patience: 0.05 });
  commands(session, 1);
  await assert.rejects(session.wait(), GradwireConnectionError);
});

// A stream that lasted has carried its batches.
test("a long computation outlasts broken streams", async () => {
  const patience = 0.3;
  const server = new ScriptedServer((stream, { request }) => {
    if (stream.attempt === 10) return stream.end(Reason.UNSPECIFIED); // an outage
    if (request.case === "attach") return stream.answer({ ...ATTACHED, creditBytes: 1n << 20n });
    if (stream.attempt > 10) return stream.answer(ANSWER);
    setTimeout(() => stream.end(Reason.UNSPECIFIED), stream.attempt === 9 ? 11_000 * patience : 0);
  });
  const session = await server.open({ patience });
  commands(session, 1);
  await session.wait();
});

test("a joined answer answers several batches", async () => {
  let batches = 0;
  const server = new ScriptedServer((stream, message) => {
    if (message.request.case === "attach") stream.answer({ ...ATTACHED, creditBytes: 1n << 20n });
    else if (++batches === 3) stream.answer({ ...ANSWER, batches: 3 });
  });
  const session = await server.open();
  commands(session, 64 * 2 + 1);
  await session.wait();
  assert.equal(batches, 3);
  await session.close();
});

test("the lease is renewed, and opening is tried again", async () => {
  const server = new ScriptedServer(() => {});
  server.failures = 2;
  const session = await server.open();
  await new Promise((resolve) => setTimeout(resolve, 300));
  const renewals = server.calls.filter((call) => call === "KeepAlive").length;
  assert.ok(renewals >= 3, `renewed ${renewals} times`);
  assert.equal(server.calls.filter((call) => call === "OpenSession").length, 3);
  await session.close();
});
