/**
 * Trains a classifier of handwritten digits. A training step is a program: the server runs an epoch by one command.
 *
 *     npm run build && node dist/examples/digits.js 127.0.0.1:50051
 */

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { gunzipSync } from "node:zlib";
import { connect, DType, functional, type Program, type Session, type Tensor } from "../src/node.js";

const PIXELS = 64;
const HIDDEN = 256;
const ROWS = 128; // of a batch
const HELD = 360; // images for the test
const IMAGES = join(import.meta.dirname, "..", "..", "..", "..", "examples", "data", "digits.csv.gz");

/** Train, and return the part of the held images that is classified right. */
export async function train(address: string, epochs = 40, path = IMAGES): Promise<number> {
  const { images, digits } = load(path);
  const session = await connect(address);
  try {
    session.manualSeed(0);
    const count = digits.length - HELD;
    const x = session.tensor(images.subarray(0, count * PIXELS), { shape: [count, PIXELS] });
    const y = session.tensor(digits.subarray(0, count));
    const parameters = [
      ...[layer(session, PIXELS, HIDDEN), session.zeros([HIDDEN]).requiresGrad_()],
      ...[layer(session, HIDDEN, 10), session.zeros([10]).requiresGrad_()],
    ];
    const step = await traced(session, parameters);
    const options = { numbers: [0.2], repeat: Math.floor(count / ROWS), sliced: [4, 5], stacked: true };
    for (let epoch = 1; epoch <= epochs; epoch++) {
      await session.tidy(async () => {
        const [losses] = step.run([...parameters, x, y], options) as [Tensor];
        if (epoch % 10 === 0) console.log(`epoch ${epoch}: loss ${(await losses.mean().item()).toFixed(4)}`);
      });
    }
    const right = session.noGrad(() => {
      const seen = session.tensor(images.subarray(count * PIXELS), { shape: [HELD, PIXELS] });
      const best = forward(parameters, seen).argmax({ dim: 1 });
      return best
        .eq(session.tensor(digits.subarray(count)))
        .to({ dtype: DType.FLOAT32 })
        .mean();
    });
    return await right.item();
  } finally {
    await session.close();
  }
}

/** A matrix of weights, uniform within 1/√inputs as PyTorch's Linear makes them. */
function layer(session: Session, inputs: number, outputs: number): Tensor {
  const made = session
    .rand([inputs, outputs])
    .sub(0.5)
    .mul(2 / Math.sqrt(inputs));
  return made.detach().requiresGrad_();
}

function forward(parameters: readonly Tensor[], x: Tensor): Tensor {
  const [w1, b1, w2, b2] = parameters as [Tensor, Tensor, Tensor, Tensor];
  return x.matmul(w1).add(b1).relu().matmul(w2).add(b2);
}

/** The program of a step of gradient descent; its number is the learning rate. */
function traced(session: Session, parameters: readonly Tensor[]): Promise<Program> {
  const batch = [{ shape: [ROWS, PIXELS] }, { dtype: DType.INT64, shape: [ROWS] }];
  return session.trace({ inputs: [...parameters, ...batch], numbers: 1 }, async (recording, inputs, [rate]) => {
    const weights = inputs.slice(0, 4);
    const [x, y] = inputs.slice(4) as [Tensor, Tensor];
    const loss = functional.crossEntropy(forward(weights, x), y);
    await loss.backward();
    recording.noGrad(() => {
      for (const weight of weights) {
        weight.sub_(weight.grad, { alpha: rate });
        weight.grad = null;
      }
    });
    return [loss.detach()];
  });
}

/** Read the images, with values in [0, 1], and their digits, in a random order. */
function load(path: string): { images: Float32Array; digits: BigInt64Array } {
  const lines = gunzipSync(readFileSync(path)).toString("utf8").trim().split("\n");
  let state = 1;
  for (let last = lines.length - 1; last > 0; last--) {
    state = (state * 48271) % 2147483647;
    const other = state % (last + 1);
    [lines[last], lines[other]] = [lines[other] as string, lines[last] as string];
  }
  const rows = lines.map((line) => line.split(",").map(Number));
  return {
    images: Float32Array.from(rows.flatMap((row) => row.slice(0, PIXELS).map((value) => value / 16))),
    digits: BigInt64Array.from(rows.map((row) => BigInt(row[PIXELS] ?? 0))),
  };
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) {
  const accuracy = await train(process.argv[2] ?? "127.0.0.1:50051");
  console.log(`accuracy on ${HELD} images that it has not seen: ${(100 * accuracy).toFixed(1)} %`);
}
