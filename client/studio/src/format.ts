// Numbers, sizes, times and shapes as text.

const SERVER_IDS = 2 ** 52; // ids from here on are the server's
const WRITER_IDS = 2 ** 40; // so many ids has each writer
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** Bytes with three digits: "12.5 MiB". */
export function bytesText(bytes: number): string {
  let unit = 0;
  let left = bytes;
  while (left >= 1023.5 && unit < UNITS.length - 1) {
    left /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? left : trimmed(left)} ${UNITS[unit]}`;
}

/** Seconds as the two largest units: "3 h 20 min". */
export function timeText(seconds: number): string {
  if (seconds < 60) return `${Math.max(0, Math.floor(seconds))} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.floor(seconds % 60)} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${minutes % 60} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** A count per second: "0", "0.4", "1,250". */
export function rateText(rate: number): string {
  if (rate === 0) return "0";
  return rate < 10 ? rate.toFixed(1) : Math.round(rate).toLocaleString("en");
}

/** A shape as Python writes it: "(3,)". */
export function shapeText(shape: readonly number[]): string {
  return shape.length === 1 ? `(${shape[0]},)` : `(${shape.join(", ")})`;
}

/** A value of a tensor with at most five significant digits. */
export function valueText(value: number): string {
  if (Number.isNaN(value)) return "nan";
  if (!Number.isFinite(value)) return value > 0 ? "inf" : "-inf";
  if (value === 0) return "0";
  const size = Math.abs(value);
  return size >= 1e5 || size < 1e-4 ? value.toExponential(2) : String(Number(value.toPrecision(5)));
}

/** A tensor's id: "3.17" is the 17th of writer 3, "s17" the 17th that the server chose. */
export function idText(id: number): string {
  if (id >= SERVER_IDS) return `s${id - SERVER_IDS}`;
  return id < WRITER_IDS ? String(id) : `${Math.floor(id / WRITER_IDS)}.${id % WRITER_IDS}`;
}

/** "1 leaf", "2 leaves". */
export function counted(count: number, one: string, several = `${one}s`): string {
  return `${count.toLocaleString("en")} ${count === 1 ? one : several}`;
}

function trimmed(value: number): string {
  return value >= 99.5 ? value.toFixed(0) : value >= 9.95 ? value.toFixed(1) : value.toFixed(2);
}

/** What went wrong, for a user. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
