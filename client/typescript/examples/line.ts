/**
 * Fits y = w x + b to points, with every tensor on a server.
 *
 *     npm run build && node dist/examples/line.js 127.0.0.1:50051
 */

import { pathToFileURL } from "node:url";
import { connect, functional } from "../src/node.js";

export async function fit(address: string): Promise<{ slope: number; intercept: number }> {
  const session = await connect(address);
  try {
    const x = session.tensor([0, 1, 2, 3]);
    const y = session.tensor([-1, 2, 5, 8]);
    const w = session.tensor(0, { requiresGrad: true });
    const b = session.tensor(0, { requiresGrad: true });
    for (let step = 0; step < 300; step++) {
      await session.tidy(async () => {
        const loss = functional.mseLoss(x.mul(w).add(b), y);
        await loss.backward();
        session.noGrad(() => {
          for (const parameter of [w, b]) {
            parameter.sub_(parameter.grad, { alpha: 0.1 });
            parameter.grad = null;
          }
        });
      });
    }
    return { slope: await w.item(), intercept: await b.item() };
  } finally {
    await session.close();
  }
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) {
  const { slope, intercept } = await fit(process.argv[2] ?? "127.0.0.1:50051");
  console.log(`y = ${slope.toFixed(3)} x + ${intercept.toFixed(3)}`);
}
