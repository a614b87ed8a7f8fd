// The shares of the strip of ops by time.
import { create } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import { type OpTime, OpTimeSchema } from "#contract/commands_pb";
import { shortHash, whyStepwise } from "../../src/session/events";
import { durationText, grouped, MOST_LOOKS, nameText, percentText, Window } from "../../src/session/times";

function times(...given: [string, string, number, number][]): OpTime[] {
  return given.map(([kind, name, seconds, calls]) =>
    create(OpTimeSchema, { kind, name, seconds, calls: BigInt(calls) }),
  );
}

test("shares are of the change within the window", () => {
  const window = new Window();
  window.take(times(["op", "add", 1, 10], ["", "", 5, 1]), 0);
  expect(window.shares()).toEqual([]);
  window.take(times(["op", "add", 2, 20], ["op", "mul", 3, 5], ["", "", 5, 1]), 2000);
  expect(window.span).toBe(2);
  expect(window.shares()).toEqual([
    { kind: "op", name: "mul", seconds: 3, calls: 5, part: 0.75 },
    { kind: "op", name: "add", seconds: 1, calls: 10, part: 0.25 },
  ]);
});

test("a watch that began anew forgets the looks before", () => {
  const window = new Window();
  window.take(times(["op", "add", 9, 10]), 0);
  window.take(times(["op", "add", 1, 1]), 1000);
  expect(window.shares()).toEqual([]);
  window.take(times(["op", "add", 2, 3]), 2000);
  expect(window.shares()).toMatchObject([{ seconds: 1, calls: 2, part: 1 }]);
});

test("the window has an end", () => {
  const window = new Window();
  for (let i = 0; i < 100; i++) window.take(times(["op", "add", i, i]), i * 1000);
  expect(window.span).toBe(MOST_LOOKS - 1);
});

test("groups have their shares, the longest first", () => {
  const share = (kind: string, name: string, part: number) => ({ kind, name, seconds: part, calls: 1, part });
  const groups = grouped([share("op", "add", 0.3), share("backward", "Mm", 0.5), share("op", "mul", 0.25)]);
  expect(groups.map((each) => [each.kind, each.part])).toEqual([
    ["op", 0.55],
    ["backward", 0.5],
  ]);
});

test("texts", () => {
  expect(["", "op", "set_grad"].map((kind) => nameText({ kind, name: "" }))).toEqual([
    "requests and answers",
    "ops",
    "set grad",
  ]);
  expect([1.234, 0.0345, 0.0000123].map(durationText)).toEqual(["1.23 s", "34.5 ms", "12.3 µs"]);
  expect([0.5, 0.0123].map(percentText)).toEqual(["50 %", "1.2 %"]);
  expect(shortHash({ hash: new Uint8Array([1, 2, 3, 4, 5, 255, 9]) })).toBe("0102030405ff");
});

test("why a compiled function ran step by step", () => {
  const program = (stepwiseBecause: string, plannedRuns: bigint, stepwiseRuns: bigint) =>
    whyStepwise({ stepwiseBecause, plannedRuns, stepwiseRuns });
  expect(program("an input has hooks", 1n, 1n)).toBe("an input has hooks.");
  expect(program("", 9n, 1n)).toMatch(/makes the plan/);
  expect(program("", 0n, 0n)).toMatch(/not run/);
});
