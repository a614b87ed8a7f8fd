/** Custom functions, hooks of nodes and snapshots against a live server. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { CustomFunction, type FunctionContext, GradwireError, Reason, restore, type Tensor } from "../src/node.js";
import { ADDRESS, CONFORMANCE, NO_SERVER, withSession } from "./support.js";

const live = { skip: NO_SERVER };
const MOVING = process.env["GRADWIRE_MOVING"] ?? "";

class Square extends CustomFunction {
  forward(context: FunctionContext, x: Tensor): Tensor {
    context.save(x);
    return x.mul(x);
  }

  backward(context: FunctionContext, gradient: Tensor): Tensor {
    const [x] = context.saved as [Tensor];
    return x.mul(gradient).mul(2);
  }
}

class SumAndDifference extends CustomFunction {
  forward(_context: FunctionContext, a: Tensor, b: Tensor): Tensor[] {
    return [a.add(b), a.sub(b)];
  }

  async backward(_context: FunctionContext, ofSum: Tensor, ofDifference: Tensor): Promise<(Tensor | null)[]> {
    assert.deepEqual(await ofDifference.array(), [0, 0]); // it has no part in the loss
    return [ofSum.mul(3), null];
  }
}

class OneTooMany extends Square {
  override backward(_context: FunctionContext, gradient: Tensor): never {
    return [gradient, gradient] as never;
  }
}

test(
  "a custom function's derivative is the program's, and can be differentiated",
  live,
  withSession(async (session) => {
    const x = session.tensor([1, 2, 3], { requiresGrad: true });
    const y = new Square("Square").apply(x);
    assert.equal((await y.describe()).gradFn, "SquareBackward");
    await y.sum().backward({ createGraph: true });
    assert.deepEqual(await x.grad.array(), [2, 4, 6]);
    const gradient = x.grad;
    x.grad = null;
    await gradient.sum().backward();
    assert.deepEqual(await x.grad.array(), [2, 2, 2]);
  }),
);

test(
  "a custom function records no graph where ops record none",
  live,
  withSession(async (session) => {
    const x = session.tensor([1, 2, 3], { requiresGrad: true });
    const square = new Square("Square");
    const quiet = session.noGrad(() => square.apply(x));
    assert.equal((await quiet.describe()).requiresGrad, false);
    const inference = session.inferenceMode(() => square.apply(x));
    assert.equal((await inference.describe()).requiresGrad, false);
    await assert.rejects(inference.mul(x).item(), /Inference tensors cannot be saved for backward/);
  }),
);

test(
  "a custom function may have several results and inputs without a gradient",
  live,
  withSession(async (session) => {
    const a = session.tensor([1, 2], { requiresGrad: true });
    const b = session.tensor([3, 4], { requiresGrad: true });
    const [sum] = new SumAndDifference("SumAndDifference").applyAll(a, b) as [Tensor, Tensor];
    assert.deepEqual(await sum.array(), [4, 6]);
    await sum.sum().backward();
    assert.deepEqual([await a.grad.array(), await b.hasGrad()], [[3, 3], false]);
    assert.throws(() => new SumAndDifference("SumAndDifference").apply(a, b), /2 results: call applyAll/);
  }),
);

test(
  "forward may not return or save a tensor of another session",
  live,
  withSession(async (session) => {
    const x = session.ones([2], { requiresGrad: true });
    await withSession(async (other) => {
      const foreign = other.ones([2]);
      class Foreign extends Square {
        constructor(private readonly saves: boolean) {
          super("Foreign");
        }

        override forward(context: FunctionContext, given: Tensor): Tensor {
          context.save(this.saves ? foreign : given);
          return this.saves ? given.mul(2) : foreign;
        }
      }
      for (const saves of [true, false]) {
        assert.throws(() => new Foreign(saves).apply(x), /forward: the tensor belongs to another session/);
      }
    })();
  }),
);

test(
  "a wrong number of gradients ends the backward",
  live,
  withSession(async (session) => {
    const x = session.ones([2], { requiresGrad: true });
    const loss = new OneTooMany("OneTooMany").apply(x).sum();
    await assert.rejects(
      loss.backward(),
      /OneTooManyBackward returned an incorrect number of gradients \(expected 1, got 2\)/,
    );
    assert.deepEqual(await x.mul(2).array(), [2, 2]);
  }),
);

test(
  "hooks of a node see and replace gradients before and after its formulas",
  live,
  withSession(async (session) => {
    const a = session.tensor([2], { requiresGrad: true });
    const b = session.tensor([5]);
    const product = a.mul(b);
    const seen: unknown[] = [];
    const before = product.gradFn.registerPrehook(([gradient]) => [gradient?.mul(10) ?? null]);
    const after = product.gradFn.registerHook(async (inputs, outputs) => {
      seen.push(await Promise.all([...inputs, ...outputs].map(async (each) => each && (await each.array()))));
      return [session.tensor([7]), null];
    });
    await product.sum().backward({ retainGraph: true });
    assert.deepEqual(seen, [[[50], null, [10]]]);
    assert.deepEqual(await a.grad.array(), [7]);
    before.remove();
    after.remove();
    a.grad = null;
    await product.sum().backward();
    assert.deepEqual(await a.grad.array(), [5]);
  }),
);

test(
  "a hook may change a leaf in place, as in PyTorch",
  live,
  withSession(async (session) => {
    const w = session.tensor([1, 2], { requiresGrad: true });
    w.registerPostAccumulateGradHook((leaf) => void leaf.sub_(leaf.grad.mul(0.5)));
    await w.sum().backward();
    assert.deepEqual(await w.array(), [0.5, 1.5]);
  }),
);

test(
  "a snapshot continues where it was saved",
  live,
  withSession(async (session) => {
    const name = "typescript-snapshot";
    const w = session.tensor([1, 2, 3], { requiresGrad: true });
    const loss = w.mul(w).sum();
    await session.save(name, { w, loss, again: w }, { ttl: 60 });
    session.noGrad(() => w.mul_(100)); // after the snapshot
    const { session: second, tensors } = await restore(ADDRESS, name);
    const { w: copy, loss: saved, again } = tensors as Record<"w" | "loss" | "again", Tensor>;
    await saved.backward(); // the graph was saved, too
    assert.deepEqual(
      [await copy.grad.array(), await again.array()],
      [
        [2, 4, 6],
        [1, 2, 3],
      ],
    );
    await assert.rejects(second.save(name, { w }), /"w" is a tensor of another session/);
    await second.close();
    await session.deleteSnapshot(name);
    await assert.rejects(restore(ADDRESS, name), (thrown) => {
      return thrown instanceof GradwireError && thrown.reason === Reason.SNAPSHOT_NOT_FOUND;
    });
  }),
);

test(
  "a snapshot is restored at the server that the first one names",
  { skip: MOVING ? false : "needs a server whose sessions move: run make test-sdks" },
  withSession(async (session) => {
    const name = "typescript-placed";
    await session.save(name, { w: session.ones([2]) }, { ttl: 60 });
    const { session: second, tensors } = await restore(MOVING, name);
    assert.deepEqual(await (tensors["w"] as Tensor).array(), [1, 1]);
    await second.close();
    await session.deleteSnapshot(name);
  }),
);

test(
  "a file whose programs the server forgets is loaded again",
  live,
  withSession(async (session) => {
    const model = await session.loadProgram(readFileSync(join(CONFORMANCE, "model.safetensors")));
    const x = session.tensor(new Float32Array(24).fill(1), { shape: [6, 4] });
    const y = session.tensor(new BigInt64Array(6));
    const loss = (): Promise<number> => (model.program().run({ x, y })[0] as Tensor).item();
    const before = await loss();
    for (let count = 0; count < 256; count++) {
      await session.trace({ inputs: [{ shape: [1] }] }, async (_session, [input]) => [(input as Tensor).add(count)]);
    }
    const after = await loss();
    assert.ok(after < before && (await loss()) < after);
  }),
);
