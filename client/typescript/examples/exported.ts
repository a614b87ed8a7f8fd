/**
 * Trains a model that Python exported, with its optimizer, and writes it to another file.
 *
 *     npm run build && node dist/examples/exported.js 127.0.0.1:50051 ../../tests/conformance trained.safetensors
 */

import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { connect, type Tensor } from "../src/node.js";

/** Take steps with a folder's model.safetensors and the values of its model.json. Returns the losses and the new file. */
export async function train(
  address: string,
  folder: string,
  steps: number,
): Promise<{ losses: number[]; saved: Uint8Array }> {
  const fit = JSON.parse(readFileSync(join(folder, "model.json"), "utf8")) as { x: number[][]; y: number[] };
  const session = await connect(address);
  try {
    const model = await session.loadProgram(readFileSync(join(folder, "model.safetensors")));
    const step = model.program();
    const x = session.tensor(fit.x);
    const y = session.tensor(fit.y.map(BigInt));
    const losses: number[] = [];
    for (let count = 0; count < steps; count++) {
      const [loss] = step.run({ x, y }) as [Tensor];
      losses.push(await loss.item());
      loss.release();
    }
    return { losses, saved: await model.save() };
  } finally {
    await session.close();
  }
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) {
  const [address = "127.0.0.1:50051", folder = ".", target = "trained.safetensors"] = process.argv.slice(2);
  const { losses, saved } = await train(address, folder, 12);
  writeFileSync(target, saved);
  console.log(`loss ${losses[0]?.toFixed(4)}, then ${losses.at(-1)?.toFixed(4)}; written to ${target}`);
}
