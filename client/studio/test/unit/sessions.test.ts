// Rates, sorting and search of the table of sessions.
import { create } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import { type SessionSummary, SessionSummarySchema } from "#contract/service_pb";
import { History, MOST_LOOKS, matching } from "../../src/sessions/history";
import { heldText, stateText } from "../../src/sessions/nodes";
import { sorted } from "../../src/virtual";

function summary(
  number: number,
  commands?: number,
  more: { principal?: string; client?: string } = {},
): SessionSummary {
  const known =
    commands === undefined
      ? {}
      : { commands: BigInt(commands), computeUs: BigInt(commands * 1000), bytes: 8n, tensors: 1n };
  return create(SessionSummarySchema, { number: BigInt(number), ...known, ...more });
}

test("rates are of the change between two looks", () => {
  const history = new History();
  expect(history.take([summary(1, 100)], 0)[0]).toMatchObject({ rate: 0, share: 0, rates: [] });
  const row = history.take([summary(1, 300)], 2000)[0];
  expect(row).toMatchObject({ rate: 100, rates: [100] });
  expect(row?.share).toBeCloseTo(0.1);
});

test("a worker that did not answer leaves the last numbers", () => {
  const history = new History();
  history.take([summary(1, 100)], 0);
  expect(history.take([summary(1)], 2000)[0]).toMatchObject({ known: false, bytes: 8, tensors: 1 });
});

test("a session that is gone is forgotten, and the history has an end", () => {
  const history = new History();
  for (let i = 0; i < 100; i++) history.take([summary(1, i), summary(2, i)], i * 1000);
  expect(history.take([summary(2, 100)], 100_000).map((row) => [row.number, row.rates.length])).toEqual([
    [2, MOST_LOOKS],
  ]);
  expect(history.take([summary(1, 5)], 101_000)[0]?.rates).toEqual([]);
});

test("search and sorting", () => {
  const rows = new History().take(
    [summary(1, 5, { principal: "alice" }), summary(2, 1, { client: "gradwire 0.1" })],
    0,
  );
  expect(matching(rows, "ALI").map((row) => row.number)).toEqual([1]);
  expect(matching(rows, " ").length).toBe(2);
  const columns = [{ key: "n", title: "", sort: (row: { number: number }) => row.number, cell: () => "" }];
  expect(sorted(rows, columns, { key: "n", down: true }).map((row) => row.number)).toEqual([2, 1]);
});

test("a node says what it holds, and what keeps it from new sessions", () => {
  expect(heldText({ bytes: 1024n, maxBytes: 0n })).toBe("1.00 KiB");
  expect(heldText({ bytes: 1024n, maxBytes: 2048n })).toBe("1.00 KiB of 2.00 KiB");
  expect(stateText({ draining: false, silentMs: 400n })).toBe("ready");
  expect(stateText({ draining: true, silentMs: 400n })).toBe("draining");
  expect(stateText({ draining: false, silentMs: 65_000n })).toBe("silent for 1 min 5 s");
});
