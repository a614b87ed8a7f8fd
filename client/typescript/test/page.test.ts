/** The code of docs/languages/typescript.md: it is type-checked here, and runs. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import {
  CustomFunction,
  connect,
  functional as F,
  type FunctionContext,
  GradwireRuntimeError,
  Reason,
  restore,
  type Tensor,
} from "../src/node.js";
import { ADDRESS, NO_SERVER, PACKAGE } from "./support.js";

test("the page's code", { skip: NO_SERVER }, async () => {
  const said: unknown[] = [];
  const console = { log: (...each: unknown[]) => said.push(...each) };
  const session = await connect(ADDRESS);
  const x = session.tensor([0, 1, 2, 3]);
  const y = session.tensor([-1, 2, 5, 8]);
  const w = session.tensor(0, { requiresGrad: true });
  for (let step = 0; step < 300; step++) {
    const loss = F.mseLoss(x.mul(w).sub(1), y);
    await loss.backward();
    session.noGrad(() => w.sub_(w.grad.mul(0.1)));
    w.grad = null;
  }
  console.log(await w.item()); // 3

  const a = session.tensor([1, 2, 3], { requiresGrad: true });
  const b = a.mul(a).retainGrad();
  await b.sum().backward();
  console.log(await a.grad.array(), await b.grad.array()); // [ 2, 4, 6 ] [ 1, 1, 1 ]

  const m = session.ones([2, 3]);
  try {
    await m.matmul(m).array();
  } catch (error) {
    if (!(error instanceof GradwireRuntimeError) || error.reason !== Reason.SHAPE) throw error;
    console.log(error.op, error.message); // matmul mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)
  }

  a.grad = null;
  const hook = a.registerHook((gradient) => gradient.mul(2)); // or async
  await a.mul(a).sum().backward();
  hook.remove();
  console.log(await a.grad.array()); // [ 4, 8, 12 ]

  class Square extends CustomFunction {
    forward(context: FunctionContext, x: Tensor) {
      context.save(x);
      return x.mul(x);
    }

    backward(context: FunctionContext, gradient: Tensor) {
      const [x] = context.saved as [Tensor];
      return x.mul(gradient).mul(2);
    }
  }
  a.grad = null;
  await new Square("Square").apply(a).sum().backward();
  console.log(await a.grad.array()); // [ 2, 4, 6 ]

  await session.save("epoch-1", { a }, { ttl: 3600 });
  const { session: again, tensors } = await restore(ADDRESS, "epoch-1");
  console.log(await tensors["a"]?.array()); // [ 1, 2, 3 ]
  await again.close();
  await session.deleteSnapshot("epoch-1");

  const program = await session.trace({ inputs: [{ shape: [3] }] }, (_recording, [input]) => {
    return [(input as Tensor).mul(2).sum()];
  });
  const [twice] = program.run([a.detach()]) as [Tensor];
  console.log(await twice.item()); // 12

  const total = session.tidy(() => a.exp().sum());
  await session.room();
  assert.ok((await total.item()) > 30);
  await session.close();

  assert.ok(Math.abs((said.shift() as number) - 3) < 1e-4);
  const refusal = "mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)";
  assert.deepEqual(said, [[2, 4, 6], [1, 1, 1], "matmul", refusal, [4, 8, 12], [2, 4, 6], [1, 2, 3], 12]);
});

test("the page's code is tested", () => {
  const page = readFileSync(join(PACKAGE, "..", "..", "docs", "languages", "typescript.md"), "utf8");
  const here = readFileSync(join(PACKAGE, "test", "page.test.ts"), "utf8");
  const blocks = [...page.matchAll(/^```ts\n(.*?)^```/gms)].map((match) => match[1] ?? "");
  assert.ok(blocks.length > 6);
  for (const block of blocks) {
    const code = block
      .replace(/^import .*\n/gm, "")
      .replace('"127.0.0.1:50051"', "ADDRESS")
      .trim();
    if (code.includes("8080")) continue; // the browser's, which web.test.ts has
    const tested = code.replace("\nawait session.close();", "").replace(/^(?=.)/gm, "  ");
    assert.ok(here.includes(tested), `the page has other code:\n${code}`);
  }
});
