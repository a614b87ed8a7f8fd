/** The examples, the README's code, and an exported model against PyTorch's losses. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { train as digits } from "../examples/digits.js";
import { train as exported } from "../examples/exported.js";
import { fit } from "../examples/line.js";
import { connect, functional as F, type Tensor } from "../src/node.js";
import { ADDRESS, CONFORMANCE, NO_SERVER, PACKAGE, withSession } from "./support.js";

const LOSSES = process.env["GRADWIRE_LOSSES"] ?? "";
const NO_LOSSES = LOSSES ? NO_SERVER : "needs the losses of Python's client: run make test-sdks";

test("a line is fitted", { skip: NO_SERVER }, async () => {
  const { slope, intercept } = await fit(ADDRESS);
  assert.ok(Math.abs(slope - 3) < 1e-3 && Math.abs(intercept + 1) < 1e-3, `${slope} ${intercept}`);
});

test("digits are classified", { skip: NO_SERVER }, async () => {
  const accuracy = await digits(ADDRESS, 8);
  assert.ok(accuracy > 0.85, String(accuracy));
});

test("an exported model trains as in PyTorch, and continues after it was saved", { skip: NO_SERVER }, async () => {
  const told = JSON.parse(readFileSync(join(CONFORMANCE, "model.json"), "utf8")) as {
    x: number[][];
    y: number[];
    losses: number[];
  };
  const half = told.losses.length / 2;
  const near = (found: number, place: number): void => {
    const wanted = told.losses[place] as number;
    assert.ok(Math.abs(found - wanted) <= 1e-5 * wanted, `step ${place}: ${found} instead of ${wanted}`);
  };
  const first = await exported(ADDRESS, CONFORMANCE, half);
  first.losses.forEach(near);
  await withSession(async (session) => {
    using model = await session.loadProgram(first.saved);
    const inputs = { x: session.tensor(told.x), y: session.tensor(told.y.map(BigInt)) };
    for (let place = half; place < told.losses.length; place++) {
      const [loss] = model.program().run(inputs) as [Tensor];
      near(await loss.item(), place);
    }
    assert.throws(() => model.program("nonsense"), /the file has no program "nonsense"/);
    await assert.rejects(session.loadProgram(new Uint8Array(10)));
  })();
});

test("an exported model with Adam has Python's losses, to the last bit", { skip: NO_LOSSES }, async () => {
  const wanted = JSON.parse(LOSSES) as number[];
  const { losses } = await exported(ADDRESS, CONFORMANCE, wanted.length);
  assert.ok(losses.length > 0);
  assert.deepEqual(losses, wanted);
});

test("the README's code", { skip: NO_SERVER }, async () => {
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
  const slope = await w.item();
  await session.close();
  assert.ok(Math.abs(slope - 3) < 1e-4, String(slope));
});

test("the README's code is tested", () => {
  const page = readFileSync(join(PACKAGE, "README.md"), "utf8");
  const block = /```ts\n(import [\s\S]*?)```/.exec(page)?.[1] ?? "";
  const lines = block.trim().split("\n").slice(2, -1); // without the imports and the close
  const tested = readFileSync(join(PACKAGE, "test", "examples.test.ts"), "utf8");
  assert.ok(lines.length > 8);
  const code = lines.map((line) => `  ${line}`.replace('"127.0.0.1:50051"', "ADDRESS")).join("\n");
  assert.ok(tested.includes(code), "the code of README.md is not that of the test");
});
