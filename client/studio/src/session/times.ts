// Op times: where a session's compute went between the first and the last look of a window, as shares for the strip.
import type { OpTime } from "#contract/commands_pb";

export const MOST_LOOKS = 30;

export interface Share {
  kind: string;
  name: string;
  seconds: number;
  calls: number;
  /** Part of all computed seconds, 0 to 1. */
  part: number;
}

export interface Group {
  kind: string;
  part: number;
  seconds: number;
  /** Its names, the longest first. */
  shares: Share[];
}

interface Look {
  at: number;
  total: number;
  times: Map<string, OpTime>;
}

/** The last looks at a session's op times. */
export class Window {
  private looks: Look[] = [];

  /** Take a look at `at` (milliseconds). A watch that began anew forgets the earlier looks. */
  take(times: readonly OpTime[], at: number): void {
    const total = times.reduce((sum, each) => sum + each.seconds, 0);
    const last = this.looks.at(-1);
    if (last && total < last.total) this.looks = [];
    const look = { at, total, times: new Map(times.map((each) => [key(each), each])) };
    this.looks = [...this.looks, look].slice(-MOST_LOOKS);
  }

  /** Seconds between the first look and the last. */
  get span(): number {
    const [first, last] = [this.looks[0], this.looks.at(-1)];
    return first && last ? (last.at - first.at) / 1000 : 0;
  }

  /** What ran between them, the longest first. */
  shares(): Share[] {
    const [first, last] = [this.looks[0], this.looks.at(-1)];
    if (!first || !last || first === last) return [];
    const all = last.total - first.total;
    const found: Share[] = [];
    for (const [name, time] of last.times) {
      const before = first.times.get(name);
      const seconds = time.seconds - (before?.seconds ?? 0);
      const calls = Number(time.calls - (before?.calls ?? 0n));
      if (seconds > 0) found.push({ kind: time.kind, name: time.name, seconds, calls, part: seconds / all });
    }
    return found.sort((one, other) => other.seconds - one.seconds);
  }
}

/** Shares by kind, the longest kind first. */
export function grouped(shares: readonly Share[]): Group[] {
  const groups = new Map<string, Group>();
  for (const share of shares) {
    const group = groups.get(share.kind) ?? { kind: share.kind, part: 0, seconds: 0, shares: [] };
    groups.set(share.kind, group);
    group.part += share.part;
    group.seconds += share.seconds;
    group.shares.push(share);
  }
  return [...groups.values()].sort((one, other) => other.part - one.part);
}

const KINDS: Record<string, string> = {
  "": "requests and answers",
  op: "ops",
  backward: "backward",
  program: "compiled functions",
  step: "steps of compiled functions",
};

/** A kind in words. */
export function kindText(kind: string): string {
  return KINDS[kind] ?? kind.replaceAll("_", " ");
}

/** A share's own name. */
export function nameText(share: Pick<Share, "kind" | "name">): string {
  return share.name || (share.kind === "backward" ? "walking the graph" : kindText(share.kind));
}

/** Part as a percentage: "12 %", "0.4 %". */
export function percentText(part: number): string {
  return `${part >= 0.0995 ? Math.round(part * 100) : (part * 100).toFixed(1)} %`;
}

/** Seconds as "1.2 s", "34 ms", "5.6 µs". */
export function durationText(seconds: number): string {
  for (const [unit, size] of [
    ["s", 1],
    ["ms", 1e-3],
  ] as const)
    if (seconds >= size) return `${Number((seconds / size).toPrecision(3))} ${unit}`;
  return `${Number((seconds / 1e-6).toPrecision(3))} µs`;
}

function key(time: OpTime): string {
  return `${time.kind}\n${time.name}`;
}
