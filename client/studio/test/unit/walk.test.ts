// A walk through a backward: what it asks of the server, so that the session stays as it is.
import { create } from "@bufbuild/protobuf";
import { beforeEach, expect, test, vi } from "vitest";
import { GraphNodeSchema } from "#contract/commands_pb";
import { Dtype, TensorSpecSchema } from "#contract/types_pb";
import { assembled, tensorOf } from "../../src/graph/model";
import { MOST_TENSORS } from "../../src/graph/reading";
import { walkOf } from "../../src/graph/walk";

interface Command {
  case: string;
  value: { tensor?: bigint; id?: bigint; grad?: bigint };
}
const asked = vi.hoisted(() => ({ commands: [] as Command[], released: [] as bigint[], more: false }));
const spec = (id: number, more: object = {}) =>
  create(TensorSpecSchema, { id: BigInt(id), dtype: Dtype.FLOAT32, requiresGrad: true, ...more });

vi.mock("../../src/calls", () => ({
  server: {
    openSession: async () => ({ writer: 1, firstId: 100n }),
    // Tensor 2 has begun to retain its gradient, and got one, since the page has read the graph.
    describe: async () => ({
      tensors: asked.more
        ? Array.from({ length: MOST_TENSORS }, (_, i) => spec(i + 1))
        : [spec(1), spec(2, { retainsGrad: true, hasGrad: true }), spec(3, { retainsGrad: true })],
      more: asked.more,
    }),
    run: async ({ commands }: { commands: { command: Command }[] }) => {
      asked.commands = commands.map(({ command }) => command);
      return { results: [] };
    },
    release: async ({ tensors }: { tensors: bigint[] }) => {
      asked.released = tensors;
    },
  },
}));

function graph() {
  const specs = [spec(1, { isLeaf: true }), spec(2), spec(3)];
  const nodes = [
    create(GraphNodeSchema, { id: 13n, name: "SumBackward0", edges: [{ node: 12n }] }),
    create(GraphNodeSchema, { id: 12n, name: "MulBackward0", edges: [{ node: 11n }] }),
    create(GraphNodeSchema, { id: 11n, name: "AccumulateGrad", leaf: specs[0] }),
  ];
  return assembled(new Map(specs.map((each) => [Number(each.id), tensorOf(each)])), nodes, [1, 2, 3], [11, 12, 13]);
}

beforeEach(() => {
  [asked.commands, asked.released, asked.more] = [[], [], false];
});

test("retained gradients are read and set again in the batch that changes them", async () => {
  await walkOf("one", graph(), 3);
  expect(asked.commands.map((each) => each.case)).toEqual(["grad", "gradients", "setGrad", "setGrad"]);
  const [read, , ...set] = asked.commands;
  expect(read?.value.tensor).toBe(2n);
  const told = new Map(set.map(({ value }) => [value.tensor, value.grad]));
  expect(told).toEqual(
    new Map([
      [2n, read?.value.id],
      [3n, 0n],
    ]),
  );
  expect(asked.released).toContain(read?.value.id);
});

test("a walk is refused where the page cannot see every tensor", async () => {
  asked.more = true;
  await expect(walkOf("two", graph(), 3)).rejects.toThrow("too many tensors");
  expect(asked.commands).toEqual([]);
});
