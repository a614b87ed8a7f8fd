// History: rates of sessions from the change between two looks, and the last values of each for its sparkline.
import type { SessionSummary } from "#contract/service_pb";

export const MOST_LOOKS = 40;

export interface SessionRow {
  number: number;
  principal: string;
  client: string;
  /** Unknown where the worker did not answer in time; then the numbers below are those of the look before. */
  known: boolean;
  bytes: number;
  tensors: number;
  /** Commands per second. */
  rate: number;
  /** Cores that it keeps busy: computed seconds per second. */
  share: number;
  /** Calls that wait or run. */
  pending: number;
  /** Seconds until it expires without traffic. */
  lease: number;
  /** Seconds since it was opened. */
  age: number;
  worker: number;
  /** Why it could not be stored, or empty. */
  unstored: string;
  rates: number[];
  shares: number[];
}

interface Look {
  at: number;
  commands: number;
  computed: number;
}

/** The rows of the table, kept from look to look. */
export class History {
  private looks = new Map<number, Look>();
  private rows = new Map<number, SessionRow>();

  /** Take a look at `at` (milliseconds). Sessions that are gone are forgotten. */
  take(sessions: readonly SessionSummary[], at: number): SessionRow[] {
    const before = this.rows;
    this.rows = new Map();
    for (const each of sessions) {
      const row = this.row(each, before.get(Number(each.number)), at);
      this.rows.set(row.number, row);
    }
    for (const number of this.looks.keys()) if (!this.rows.has(number)) this.looks.delete(number);
    return [...this.rows.values()];
  }

  private row(summary: SessionSummary, was: SessionRow | undefined, at: number): SessionRow {
    const number = Number(summary.number);
    const known = summary.commands !== undefined;
    const look = { at, commands: Number(summary.commands ?? 0), computed: Number(summary.computeUs ?? 0) };
    const before = this.looks.get(number);
    let [rate, share] = [was?.rate ?? 0, was?.share ?? 0];
    if (known) {
      this.looks.set(number, look);
      const seconds = before ? Math.max((at - before.at) / 1000, 1e-3) : 0;
      rate = before ? Math.max(0, look.commands - before.commands) / seconds : 0;
      share = before ? Math.max(0, look.computed - before.computed) / seconds / 1e6 : 0;
    }
    return {
      number,
      principal: summary.principal,
      client: summary.client,
      known,
      bytes: known ? Number(summary.bytes ?? 0) : (was?.bytes ?? 0),
      tensors: known ? Number(summary.tensors ?? 0) : (was?.tensors ?? 0),
      rate,
      share,
      pending: summary.pending,
      lease: Number(summary.leaseLeftMs) / 1000,
      age: Number(summary.ageMs) / 1000,
      worker: summary.worker,
      unstored: summary.unstored,
      rates: pushed(was?.rates, rate, before !== undefined),
      shares: pushed(was?.shares, share, before !== undefined),
    };
  }
}

/** Rows whose principal, client or number contains the text. */
export function matching(rows: readonly SessionRow[], text: string): SessionRow[] {
  const wanted = text.trim().toLowerCase();
  if (!wanted) return [...rows];
  return rows.filter((row) => `${row.number} ${row.principal} ${row.client}`.toLowerCase().includes(wanted));
}

function pushed(values: number[] | undefined, value: number, measured: boolean): number[] {
  return measured ? [...(values ?? []), value].slice(-MOST_LOOKS) : (values ?? []);
}
