/** The bytes of tests/conformance/golden.json. */

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { fromBinary, toBinary } from "@bufbuild/protobuf";
import { Words } from "../src/batch.js";
import { Call } from "../src/call.js";
import { fromStatus, Reason } from "../src/errors.js";
import { ProgramSchema } from "../src/gen/gradwire/v1/programs_pb.js";
import { GradMode } from "../src/gen/gradwire/v1/types_pb.js";
import type { Session } from "../src/session.js";
import { Tensor } from "../src/tensor.js";
import { CONFORMANCE } from "./support.js";

// biome-ignore lint/suspicious/noExplicitAny: arguments of several kinds
type Given = Record<string, any>;

interface Golden {
  prepared_calls: {
    number: number;
    op: string;
    args?: Given[];
    named?: Record<string, Given>;
    outputs?: number[];
    words: string;
  }[];
  programs: { bytes: string; sha256: string }[];
  errors: { bytes: string; code: number; reason: string; message: string; metadata: Record<string, string> }[];
}

const golden = JSON.parse(readFileSync(join(CONFORMANCE, "golden.json"), "utf8")) as Golden;
const session = {} as Session; // no command is sent
const named = (id: number): Tensor => new Tensor(session, id);

function add(call: Call, name: string, given: Given): void {
  for (const [kind, value] of Object.entries(given)) {
    if (kind === "tensor") call.tensor(name, named(value));
    else if (kind === "tensors") call.tensors(name, value.map(named));
    else if (kind === "index") call.index(name, [0]);
    else call[kind as "float"](name, value);
  }
}

for (const vector of golden.prepared_calls) {
  test(`the words of ${vector.op}`, () => {
    const call = new Call(vector.op, session);
    for (const each of vector.args ?? []) add(call, "", each);
    for (const [name, each] of Object.entries(vector.named ?? {}).sort()) add(call, name, each);
    const outputs = (vector.outputs ?? []).map(named);
    if (vector.op === "getitem") {
      assert.equal(call.key(GradMode.UNSPECIFIED, outputs.length), "", "an index would be prepared, but has no words");
      return;
    }
    const words = new Words();
    words.id(vector.number);
    call.words(words, outputs);
    assert.equal(Buffer.from(words.take()).toString("hex"), vector.words);
  });
}

test("many words", () => {
  const words = new Words();
  for (let value = 0; value < 5000; value++) words.float(value);
  const taken = words.take();
  assert.equal(new DataView(taken.buffer).getFloat64(8 * 4999, true), 4999);
  assert.equal(words.length, 0);
});

test("the hashes of programs", () => {
  for (const { bytes, sha256 } of golden.programs) {
    const again = toBinary(ProgramSchema, fromBinary(ProgramSchema, Buffer.from(bytes, "hex")));
    assert.equal(createHash("sha256").update(again).digest("hex"), sha256);
  }
});

test("the trailers of refusals", () => {
  for (const { bytes, code, reason, message, metadata } of golden.errors) {
    const error = fromStatus(2, "", Buffer.from(bytes, "hex"));
    assert.deepEqual([error.code, Reason[error.reason], error.message], [code, reason, message]);
    assert.deepEqual({ ...error.metadata }, metadata);
    assert.equal(error.op, metadata["op"]);
    assert.equal(JSON.stringify(error.shape), metadata["shape"]?.replace(" ", ""));
  }
});
