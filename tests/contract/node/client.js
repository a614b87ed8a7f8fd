// The contract seen from another language: numbers, gradients, refusals and ids, against the server at argv[2].
// Prints one "OK name" line per promise kept; the first broken one ends the run with status 1.
"use strict";

const assert = require("node:assert/strict");
const { connect, float32, values, grpc } = require("../../../examples/node/gradwire.js");

/** One session of `client`, with the calls the checks make in short. */
async function openSession(client) {
  const { session_id, protocol, writer } = await client.OpenSession({ client: "contract-node" });
  assert.ok(session_id.length >= 16 && protocol >= 1 && writer === 1);
  return {
    id: session_id,
    create: async (shape, data, requires_grad = false, id = 0) =>
      (await client.Create({ session_id, id, requires_grad, payload: float32(shape, data) })).tensor,
    op: async (op, ...tensors) =>
      (await client.Op({ session_id, op, args: tensors.map(({ id }) => ({ tensor: id })) })).outputs[0],
    backward: ({ id }) => client.Backward({ session_id, tensors: [id] }),
    retainGrad: async ({ id }) => (await client.RetainGrad({ session_id, tensor: id })).tensor,
    grad: async ({ id }) => (await client.Grad({ session_id, tensor: id })).grad,
    read: async ({ id }) => values((await client.Read({ session_id, tensor: id })).payload),
    close: () => client.CloseSession({ session_id }),
  };
}

/** The error a call is refused with. */
async function refusal(call) {
  try {
    await call;
  } catch (error) {
    return error;
  }
  throw new assert.AssertionError({ message: "the call was not refused" });
}

const checks = {
  async "square retains its gradient"(session) {
    const a = await session.create([1], [3], true);
    const b = await session.op("mul", a, a);
    assert.deepEqual([a.is_leaf, b.is_leaf, b.requires_grad, b.grad_fn], [true, false, true, "MulBackward0"]);
    assert.equal((await session.retainGrad(b)).retains_grad, true);
    assert.equal(await session.grad(a), null);
    await session.backward(b);
    assert.deepEqual(await session.read(b), [9]);
    assert.deepEqual(await session.read(await session.grad(b)), [1]);
    assert.deepEqual(await session.read(await session.grad(a)), [6]);
  },

  async "broadcast gradient has the leaf's shape"(session) {
    const column = await session.create([2, 1], [2, 3], true);
    const row = await session.create([3], [1, 10, 100], true);
    const product = await session.op("mul", column, row);
    assert.deepEqual(product.shape, [2, 3]);
    assert.deepEqual(await session.read(product), [2, 20, 200, 3, 30, 300]);
    await session.backward(await session.op("sum", product));
    const [gradOfColumn, gradOfRow] = [await session.grad(column), await session.grad(row)];
    assert.deepEqual([gradOfColumn.shape, await session.read(gradOfColumn)], [[2, 1], [111, 111]]);
    assert.deepEqual([gradOfRow.shape, await session.read(gradOfRow)], [[3], [5, 5, 5]]);
  },

  async "a large id survives as a number"(session) {
    const id = 2 ** 52 - 1;
    assert.equal((await session.create([1], [7], false, id)).id, id);
    assert.deepEqual(await session.read({ id }), [7]);
  },

  async "a refusal tells its reason and harms nothing"(session, client) {
    const kept = await session.create([2], [1, 2]);
    const other = await session.create([3], [1, 2, 3]);

    const shapes = await refusal(session.op("mul", kept, other));
    assert.equal(shapes.code, grpc.status.INVALID_ARGUMENT);
    assert.deepEqual([shapes.info.reason, shapes.info.domain], ["SHAPE", "gradwire"]);
    assert.equal(shapes.info.metadata.op, "mul");

    const unknown = await refusal(session.read({ id: 12345 }));
    assert.deepEqual([unknown.code, unknown.info.reason], [grpc.status.NOT_FOUND, "TENSOR_NOT_FOUND"]);

    const noOp = await refusal(session.op("no_such_op", kept));
    assert.deepEqual([noOp.code, noOp.info.reason], [grpc.status.UNIMPLEMENTED, "OP_UNKNOWN"]);

    const stranger = await refusal(client.Read({ session_id: "not-a-session", tensor: kept.id }));
    assert.deepEqual([stranger.code, stranger.info.reason], [grpc.status.NOT_FOUND, "SESSION_NOT_FOUND"]);

    assert.deepEqual(await session.read(kept), [1, 2]);
    assert.deepEqual(await session.read(other), [1, 2, 3]);
  },

  async "a batch goes on after a refused command"(session, client) {
    const payload = float32([1], [4]);
    const { results, applied_seq } = await client.Run({
      session_id: session.id,
      writer: 1,
      first_seq: 1,
      commands: [
        { create: { id: 501, payload } },
        { op: { op: "no_such_op", args: [{ tensor: 501 }], outputs: [502] } },
        { read: { tensor: 501 } },
        { read: { tensor: 502 } },
      ],
    });
    assert.equal(applied_seq, 4);
    assert.deepEqual(results.map(({ seq, result }) => [seq, result]), [
      [1, "create"],
      [2, "error"],
      [3, "read"],
      [4, "error"],
    ]);
    assert.equal(results[1].error.reason, "REASON_OP_UNKNOWN");
    assert.deepEqual(values(results[2].read.payload), [4]);
    assert.deepEqual([results[3].error.reason, results[3].error.root_seq], ["REASON_DEPENDENCY_FAILED", 2]);
  },

  async "the ops describe themselves"(_session, client) {
    const { ops } = await client.ListOps({ prefix: "mul" });
    const mul = ops.find(({ name }) => name === "mul");
    assert.ok(mul.differentiable && mul.doc && mul.parameters.length === 2);
  },
};

async function main(address) {
  const client = connect(address);
  try {
    for (const [name, check] of Object.entries(checks)) {
      const session = await openSession(client);
      await check(session, client);
      await session.close();
      const gone = await refusal(session.read({ id: 1 }));
      assert.equal(gone.code, grpc.status.NOT_FOUND);
      console.log(`OK ${name}`);
    }
  } finally {
    client.close();
  }
}

main(process.argv[2]).catch((error) => {
  console.error(error, error.info ?? "");
  process.exitCode = 1;
});
