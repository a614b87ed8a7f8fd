// Example: a session of this page with a small network, so that a new user sees a graph without a program.
import { create as message } from "@bufbuild/protobuf";
import { type Argument, ArgumentSchema, Dtype } from "#contract/types_pb";
import { server } from "./calls";
import { add, type Opened } from "./opened";

/** Make the session: a layer, a leaf that is not used, a retained gradient, and a backward. */
export async function makeExample(): Promise<Opened> {
  const { sessionId, firstId } = await server.openSession({ client: "gradwire-studio example" });
  let next = firstId;
  const leaf = async (shape: number[], requiresGrad: boolean) => {
    const values = new Float32Array(shape.reduce((product, size) => product * size, 1)).map((_, i) =>
      Math.sin(i * 1.7 + shape.length),
    );
    const payload = { dtype: Dtype.FLOAT32, shape: shape.map(BigInt), data: new Uint8Array(values.buffer) };
    const made = await server.create({
      sessionId,
      id: next++,
      requiresGrad,
      source: { case: "payload", value: payload },
    });
    return made.tensor?.id ?? 0n;
  };
  const op = async (name: string, ...args: (bigint | number)[]) => {
    const made = await server.op({ sessionId, op: name, outputs: [next++], args: args.map(argument) });
    return made.outputs[0]?.id ?? 0n;
  };
  const [x, w1, b1, w2] = [
    await leaf([8, 4], false),
    await leaf([4, 16], true),
    await leaf([16], true),
    await leaf([16, 2], true),
  ];
  await leaf([3, 3], true); // not used: its gradient stays None
  const hidden = await op("tanh", await op("add", await op("matmul", x, w1), b1));
  await server.retainGrad({ sessionId, tensor: hidden });
  const loss = await op("mean", await op("pow", await op("matmul", hidden, w2), 2));
  await server.backward({ sessionId, tensors: [loss], retainGraph: true });
  return add(sessionId, "example");
}

function argument(value: bigint | number): Argument {
  const kind =
    typeof value === "bigint" ? { case: "tensor" as const, value } : { case: "integer" as const, value: BigInt(value) };
  return message(ArgumentSchema, { kind });
}
