/** Sessions, tensors and errors against a live server. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import * as grpc from "@grpc/grpc-js";
import { AutogradService, ListOpsRequestSchema, ListOpsResponseSchema } from "../src/gen/gradwire/v1/service_pb.js";
import {
  cat,
  connect,
  DType,
  float,
  functional,
  GradwireIndexError,
  GradwireRuntimeError,
  GradwireTypeError,
  GradwireValueError,
  grad,
  linalg,
  Reason,
  type Tensor,
  viewAsComplex,
} from "../src/node.js";
import { OPS_HASH } from "../src/ops.js";
import { ADDRESS, cutting, NO_PROXY, NO_RESTARTS, NO_SERVER, restarting, withSession } from "./support.js";

const live = { skip: NO_SERVER };

test("the generated ops are the server's", live, async () => {
  const client = new grpc.Client(ADDRESS, grpc.credentials.createInsecure());
  const answer = await new Promise<Buffer>((resolve, reject) => {
    client.makeUnaryRequest(
      `/${AutogradService.typeName}/ListOps`,
      (bytes: Buffer) => bytes,
      (bytes: Buffer) => bytes,
      Buffer.from(toBinary(ListOpsRequestSchema, create(ListOpsRequestSchema, { knownHash: OPS_HASH }))),
      (error, found) => (found ? resolve(found) : reject(error)),
    );
  });
  client.close();
  assert.equal(fromBinary(ListOpsResponseSchema, answer).ops.length, 0, "run `python -m tools.sdk_ops`");
});

test(
  "typed ops",
  live,
  withSession(async (session) => {
    const a = session.tensor([
      [1, 5, 3],
      [4, 2, 6],
    ]);
    assert.deepEqual(await a.sum({ dim: 0, keepdim: true }).array(), [[5, 7, 9]]);
    const [values, indices] = a.maxDim(1);
    assert.deepEqual(
      [await values.array(), await indices.array()],
      [
        [5, 6],
        [1, 2],
      ],
    );
    assert.deepEqual(await cat([a, a], { dim: 1 }).shape(), [2, 6]);
    assert.deepEqual(await a.index(0, "1:").array(), [5, 3]);
    assert.deepEqual(await a.index("...", 0).array(), [1, 4]);
    assert.deepEqual(await a.index(a.gt(3)).array(), [5, 4, 6]);
    assert.deepEqual(await a.setIndex([0], 0).array(), [
      [0, 0, 0],
      [4, 2, 6],
    ]);
    assert.equal((await a.chunk(2)).length, 2);
    assert.equal(await linalg.det(session.eye(3).mul(2)).item(), 8);
    assert.equal(await functional.relu6(session.tensor(9)).item(), 6);
    const whole = session.tensor([1, 2], { dtype: DType.INT64 });
    assert.equal((await whole.mul(2).describe()).dtype, DType.INT64);
    assert.equal((await whole.mul(float(2)).describe()).dtype, DType.FLOAT32);
  }),
);

test(
  "mistakes have PyTorch's sentences",
  live,
  withSession(async (session) => {
    const a = session.tensor([
      [1, 2, 3],
      [4, 5, 6],
    ]);
    const bad = a.matmul(a);
    await assert.rejects(bad.relu().read(), (error) => {
      assert.ok(error instanceof GradwireRuntimeError);
      assert.equal(error.message, "mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)");
      assert.deepEqual([error.reason, error.op, error.shape], [Reason.SHAPE, "matmul", [2, 3]]);
      return true;
    });
    const leaf = session.tensor([1, 2], { requiresGrad: true });
    leaf.add_(1);
    await assert.rejects(session.wait(), /a leaf Variable that requires grad is being used in an in-place operation/);
    await assert.rejects(async () => {
      await leaf.mul(2).backward();
      await session.wait();
    }, /^GradwireRuntimeError: grad can be implicitly created only for scalar outputs/);
    await assert.rejects(a.item(), /^GradwireRuntimeError: a Tensor with 6 elements cannot be converted to Scalar$/);
    await assert.rejects(a.index(2).read(), GradwireIndexError);
    assert.deepEqual(await a.sum().array(), 21);
  }),
);

test(
  "mistakes found here",
  live,
  withSession(async (session) => {
    const other = await connect(ADDRESS);
    const foreign = session.tensor([1]).add(other.tensor([1]));
    await assert.rejects(foreign.read(), GradwireValueError);
    await other.close();
    await session.wait(); // it was told
    const typed = session.tensor([1]).add({} as unknown as Tensor);
    await assert.rejects(session.wait(), GradwireTypeError);
    await assert.rejects(typed.read(), GradwireTypeError);
    const sized = session.fromBytes(DType.FLOAT32, new Uint8Array(3), [1]);
    await assert.rejects(sized.read(), GradwireValueError);
    assert.throws(() => session.noGrad((async () => {}) as () => never), TypeError);
    assert.throws(() => session.tensor([[1], [1, 2]]), GradwireValueError);
  }),
);

test(
  "tidy releases what is not returned or kept",
  live,
  withSession(async (session) => {
    let kept: Tensor | undefined;
    let lost: Tensor | undefined;
    const { returned } = session.tidy(() => {
      lost = session.tensor(1);
      kept = session.tensor(2).keep();
      return { returned: session.tensor(3) };
    });
    assert.equal(await returned.item(), 3);
    assert.equal(await kept?.item(), 2);
    await session.wait();
    await assert.rejects(lost?.item() ?? Promise.resolve(), { reason: Reason.TENSOR_NOT_FOUND });
    const inner = await session.tidy(async () => session.tidy(() => session.tensor(4)));
    assert.equal(await inner.item(), 4);
  }),
);

test(
  "values of every type",
  live,
  withSession(async (session) => {
    const arrays = [
      Float32Array.of(1.5, -2),
      Float64Array.of(1.5, -2),
      Int8Array.of(1, -2),
      Int16Array.of(1, -2),
      Int32Array.of(1, -2),
      BigInt64Array.of(1n, -(2n ** 60n)),
      Uint8Array.of(1, 255),
      Uint16Array.of(1, 65535),
      Uint32Array.of(1, 2 ** 31),
      BigUint64Array.of(1n, 2n ** 63n),
    ];
    for (const values of arrays) assert.deepEqual(await session.tensor(values).data(), values);
    const half = session.tensor([1.5, Number.NEGATIVE_INFINITY, 2 ** -20]).to({ dtype: DType.FLOAT16 });
    assert.deepEqual(await half.array(), [1.5, Number.NEGATIVE_INFINITY, 2 ** -20]);
    assert.deepEqual(await session.tensor([1.5, 3]).to({ dtype: DType.BFLOAT16 }).array(), [1.5, 3]);
    assert.deepEqual(await session.tensor([true, false]).array(), [1, 0]);
    assert.deepEqual(await session.tensor([[], []]).shape(), [2, 0]);
  }),
);

test(
  "a gradient of a gradient, and hooks that wait",
  live,
  withSession(async (session) => {
    const x = session.tensor(3, { requiresGrad: true });
    const [first] = (await grad([x.mul(x).mul(x)], [x], { createGraph: true })) as [Tensor];
    const [second] = (await grad([first], [x])) as [Tensor];
    assert.deepEqual([await first.item(), await second.item()], [27, 18]);
    const hook = x.registerHook(async (gradient) => gradient.mul(await session.tensor(2).item()));
    await x.mul(5).backward();
    assert.equal(await x.grad.item(), 10);
    hook.remove();
    await x.mul(5).backward();
    assert.equal(await x.grad.item(), 15);
  }),
);

test("4,000 additions arrive once through a proxy that cuts", { skip: NO_PROXY, timeout: 60_000 }, async () => {
  const proxy = await cutting(500, 20_000);
  const session = await connect(proxy.address, { localStream: false });
  const w = session.tensor(0);
  for (let count = 0; count < 4000; count++) {
    w.add_(1);
    if (count % 100 === 99) await session.room();
  }
  assert.equal(await w.item(), 4000);
  assert.ok(session.reconnects > 0);
  await session.close().catch(() => {}); // the proxy may cut the last call
  await proxy.end();
});

test(
  "bulk values among commands",
  live,
  withSession(async (session) => {
    const values = Float32Array.from({ length: 3 << 18 }, (_, place) => place % 13);
    const small = session.tensor(1);
    const large = session.tensor(values);
    const sum = large.add(small);
    assert.deepEqual(
      await sum.data(),
      values.map((value) => value + 1),
    );
  }),
);

test("a session continues after the server restarts", { skip: NO_RESTARTS, timeout: 120_000 }, async () => {
  const server = await restarting();
  const session = await connect(server.address, { localStream: false });
  const w = session.tensor(0);
  for (let round = 0; round < 2; round++) {
    for (let count = 0; count < 200; count++) w.add_(1);
    if (round === 0) await server.restart();
  }
  assert.equal(await w.item(), 400);
  assert.ok(session.reconnects > 0);
  await session.close();
  server.end();
});

test("a device is asked for", live, async () => {
  await (await connect(ADDRESS, { deviceType: "cpu" })).close();
  await assert.rejects(connect(ADDRESS, { deviceType: "abacus" }), { reason: Reason.DEVICE_UNAVAILABLE });
});

test("a closed session", live, async () => {
  const session = await connect(ADDRESS);
  const a = session.tensor([1, 2]);
  await session.close();
  await session.close();
  await assert.rejects(async () => a.add(1).data(), /the session is closed/);
});

// Messages of the server's chunk, 1 MiB, pass few of these connections.
test("large values pass connections that carry less than a chunk", { skip: NO_PROXY, timeout: 60_000 }, async () => {
  const proxy = await cutting(100_000, 1_000_000);
  const session = await connect(proxy.address);
  const values = Uint8Array.from({ length: 5 << 20 }, (_, place) => place % 251);
  const found = await session.tensor(values).data();
  assert.equal(Buffer.compare(found as Uint8Array, values), 0);
  await session.close().catch(() => {}); // the proxy may cut the last call
  await proxy.end();
});

// Each connection attaches, so the server answers; but it breaks before the batch has arrived.
test("a batch that no connection carries ends with an error", { skip: NO_PROXY, timeout: 60_000 }, async () => {
  const proxy = await cutting(100_000, 100_000);
  const session = await connect(proxy.address, { localStream: false, patience: 0.8 });
  const large = session.tensor(new Uint8Array(800_000)); // within the limit of one message
  await assert.rejects(large.data(), /\d+ connections broke in 8 s before a batch of 800\d{3} bytes/);
  await proxy.end();
});

test(
  "numbers keep their values",
  live,
  withSession(async (session) => {
    const ones = session.ones([2]);
    // Whole numbers beyond 64 bits are floats, as 1e30 is in Python.
    assert.deepEqual(await ones.mul(2 ** 100).array(), [2 ** 100, 2 ** 100]);
    assert.deepEqual(await ones.maskedFill(session.tensor([true, false]), -(2 ** 70)).array(), [-(2 ** 70), 1]);
    assert.equal(await ones.copysign(float(-0)).index(0).item(), -1);
    await assert.rejects(
      session
        .tensor([1n])
        .mul(2n ** 70n)
        .array(),
      /Overflow when unpacking long long/,
    );
    // Complex numbers are pairs, and dimensions of size 0 keep their rows.
    const complex = viewAsComplex(session.tensor([1, 2, 3, 4, 5, 6, 7, 8], { shape: [2, 2, 2] }));
    assert.deepEqual(await complex.array(), [
      [
        [1, 2],
        [3, 4],
      ],
      [
        [5, 6],
        [7, 8],
      ],
    ]);
    assert.deepEqual(await complex.index(1, 0).array(), [5, 6]);
    await assert.rejects(complex.index(1, 0).item(), /complex64 cannot be converted to real numbers/);
    assert.deepEqual(await session.zeros([3, 0]).array(), [[], [], []]);
    // What does not fit is refused, not wrapped.
    for (const [value, dtype] of [
      [300, DType.INT8],
      [-1, DType.UINT8],
      [-1n, DType.UINT64],
      [2n ** 63n, DType.INT64],
      [Number.NaN, DType.INT32],
    ] as const) {
      assert.throws(
        () => session.tensor([value], { dtype }),
        /value cannot be converted to type u?int\d+ without overflow/,
      );
    }
    assert.deepEqual(await session.tensor([1.7, -1.7], { dtype: DType.INT64 }).array(), [1, -1]);
    assert.deepEqual(await session.tensor([Number.NaN, 0], { dtype: DType.BOOL }).array(), [1, 0]);
    // Mistakes of numbers are refusals, which surface as others do.
    await assert.rejects(ones.sum({ dim: [0.5] }).array(), /must be int, not float/);
    await assert.rejects(ones.index(0.5).array(), GradwireIndexError);
    await assert.rejects(ones.index("0.5:").array(), GradwireTypeError);
    assert.deepEqual(await ones.array(), [1, 1]);
  }),
);

test(
  "a tensor of another session is refused where its id would mean another tensor",
  live,
  withSession(async (session) => {
    const other = await connect(ADDRESS);
    try {
      const a = session.tensor([1, 2], { requiresGrad: true });
      const foreign = other.tensor([5, 5]);
      a.grad = foreign;
      await assert.rejects(session.wait(), /belongs to another session/);
      a.setData(foreign);
      await assert.rejects(session.wait(), /belongs to another session/);
      const hook = a.registerHook(() => foreign);
      await assert.rejects(a.mul(2).sum().backward(), /belongs to another session/);
      hook.remove();
      assert.equal(await a.hasGrad(), false);
      assert.deepEqual(await a.array(), [1, 2]);
    } finally {
      await other.close();
    }
  }),
);
