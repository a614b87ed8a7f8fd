// Printing: values as Python and PyTorch write them. The rules of tensors are those of torch._tensor_str.
import {
  Closure,
  Dtype,
  Ellipsis,
  GraphNode,
  List,
  Module,
  Native,
  Range,
  SliceValue,
  Tensor,
  Tuple,
  typeName,
  type Value,
} from "./objects";

/** A tensor's values and flags as they were at one moment. */
export interface Shown {
  /** "float32". */
  dtype: string;
  shape: number[];
  numbers: ArrayLike<number | bigint>;
  requiresGrad: boolean;
  /** The name of the node that made it; empty for a leaf. */
  gradFn: string;
}

const PRECISION = 4;
const THRESHOLD = 1000;
const EDGE = 3;
const WIDTH = 80;
const MOST_ITEMS = 2_000; // of a list and its lists that are written out
const DEEPEST = 50; // lists in lists

/** A float as Python writes it. */
export function floatText(value: number): string {
  if (Number.isNaN(value)) return "nan";
  if (!Number.isFinite(value)) return value > 0 ? "inf" : "-inf";
  if (Object.is(value, -0)) return "-0.0";
  const [mantissa = "", power = "0"] = value.toExponential().split("e");
  const exponent = Number(power);
  if (exponent < -4 || exponent >= 16) return `${mantissa}e${exponentText(exponent)}`;
  const digits = Math.max(mantissa.replace(/[-.]/g, "").length - 1 - exponent, 1);
  return value.toFixed(digits);
}

function exponentText(exponent: number): string {
  return `${exponent < 0 ? "-" : "+"}${String(Math.abs(exponent)).padStart(2, "0")}`;
}

/** A number with fixed digits. Python rounds a tie to the even digit, JavaScript does not. */
export function fixed(value: number, digits: number): string {
  if (!Number.isFinite(value)) return floatText(value);
  if (Math.abs(value) >= 1e21) return BigInt(value).toString() + (digits ? `.${"0".repeat(digits)}` : "");
  return tied(value.toFixed(digits), value.toFixed(Math.min(100, digits + 40)), value < 0 || Object.is(value, -0));
}

/** The text that a tie is rounded to. `long` has more digits than the exact value needs. */
function tied(rounded: string, long: string, negative: boolean): string {
  const kept = rounded.replace("-", "").length;
  const digits = long.replace("-", "");
  const cut = digits.slice(0, kept);
  const rest = digits.slice(kept).replace(".", "");
  const isTie = /^50*$/.test(rest) && "02468".includes(cut.replace(".", "").at(-1) ?? "");
  const plain = isTie ? cut.replace(/\.$/, "") : rounded.replace("-", "");
  return `${negative ? "-" : ""}${plain}`;
}

/** A number in scientific notation. */
export function scientific(value: number, digits: number): string {
  if (!Number.isFinite(value)) return floatText(value);
  const [mantissa = "", power = "0"] = value.toExponential(digits).split("e");
  const [long = "", longPower] = value.toExponential(Math.min(100, digits + 40)).split("e");
  const told = longPower === power ? tied(mantissa, long, value < 0) : mantissa;
  return `${told}e${exponentText(Number(power))}`;
}

/** How the elements of a tensor are written, all in one width. */
class Formatter {
  private wide = 1;
  private whole = true;
  private scientific = false;

  constructor(
    values: readonly (number | bigint)[],
    private readonly dtype: string,
  ) {
    if (!isFloating(dtype)) {
      for (const each of values) this.widen(this.plain(each).length);
      return;
    }
    const told = values.map(Number).filter((each) => Number.isFinite(each) && each !== 0);
    if (!told.length) return;
    let [least, most] = [Number.POSITIVE_INFINITY, 0];
    for (const each of told) {
      least = Math.min(least, Math.abs(each));
      most = Math.max(most, Math.abs(each));
      if (!Number.isInteger(each)) this.whole = false;
    }
    this.scientific = most / least > 1000 || most > 1e8 || (!this.whole && least < 1e-4);
    for (const each of told) {
      if (this.scientific) this.widen(scientific(each, PRECISION).length);
      else this.widen(this.whole ? fixed(each, 0).length + 1 : fixed(each, PRECISION).length);
    }
  }

  get width(): number {
    return this.wide;
  }

  private widen(width: number): void {
    this.wide = Math.max(this.wide, width);
  }

  private plain(value: number | bigint): string {
    if (this.dtype === "bool") return value ? "True" : "False";
    return String(value);
  }

  text(value: number | bigint): string {
    return this.unpadded(value).padStart(this.wide);
  }

  private unpadded(value: number | bigint): string {
    if (!isFloating(this.dtype)) return this.plain(value);
    const number = Number(value);
    if (this.scientific) return scientific(number, PRECISION);
    if (!this.whole) return fixed(number, PRECISION);
    return Number.isFinite(number) ? `${fixed(number, 0)}.` : floatText(number);
  }
}

function isFloating(dtype: string): boolean {
  return dtype.startsWith("float") || dtype.startsWith("bfloat");
}

/** A tensor as PyTorch writes it: "tensor([1., 2.], requires_grad=True)". */
export function tensorText(shown: Shown): string {
  const { dtype, shape, numbers } = shown;
  const count = shape.reduce((product, size) => product * size, 1);
  const suffixes: string[] = [];
  const prefix = "tensor(";
  let text: string;
  if (count === 0) {
    text = "[]";
    if (shape.length !== 1) suffixes.push(`size=${tupleText(shape.map(String))}`);
  } else if (dtype.startsWith("complex")) {
    text = "..."; // the page shows complex values as absolute values beside it
  } else {
    const summarized = count > THRESHOLD;
    const formatter = new Formatter(
      [...within(shape, 0, summarized)].map((at) => numbers[at] ?? 0),
      dtype,
    );
    const level = { numbers, shape, summarized, formatter };
    text = shape.length ? nestedText(level, 0, 0, prefix.length) : formatter.text(numbers[0] ?? 0);
  }
  const usual = ["float32", "bool", "complex64"].includes(dtype) || (dtype === "int64" && count > 0);
  if (!usual) suffixes.push(`dtype=torch.${dtype}`);
  if (shown.gradFn) suffixes.push(`grad_fn=<${shown.gradFn}>`);
  else if (shown.requiresGrad) suffixes.push("requires_grad=True");
  return withSuffixes(prefix + text, suffixes, prefix.length);
}

/** The places of the elements that are written. */
function* within(shape: readonly number[], dim: number, summarized: boolean, at = 0): Generator<number> {
  if (dim === shape.length) {
    yield at;
    return;
  }
  const size = shape[dim] ?? 0;
  for (const each of edges(size, summarized)) {
    if (each >= 0) yield* within(shape, dim + 1, summarized, at * size + each);
  }
}

/** The items of a dimension that are written; -1 stands for dots. */
function edges(size: number, summarized: boolean): number[] {
  const all = (from: number, to: number) => Array.from({ length: to - from }, (_, i) => from + i);
  if (!summarized || size <= 2 * EDGE) return all(0, size);
  return [...all(0, EDGE), -1, ...all(size - EDGE, size)];
}

interface Level {
  numbers: ArrayLike<number | bigint>;
  shape: readonly number[];
  summarized: boolean;
  formatter: Formatter;
}

function nestedText(level: Level, dim: number, at: number, indent: number): string {
  const { shape, summarized, formatter, numbers } = level;
  const size = shape[dim] ?? 0;
  const places = edges(size, summarized);
  if (dim === shape.length - 1) {
    const perLine = Math.max(1, Math.floor((WIDTH - indent) / (formatter.width + 2)));
    const told = places.map((each) => (each < 0 ? " ..." : formatter.text(numbers[at * size + each] ?? 0)));
    const lines: string[] = [];
    for (let from = 0; from < told.length; from += perLine) lines.push(told.slice(from, from + perLine).join(", "));
    return `[${lines.join(`,\n${" ".repeat(indent + 1)}`)}]`;
  }
  const parts = places.map((each) => (each < 0 ? "..." : nestedText(level, dim + 1, at * size + each, indent + 1)));
  const left = shape.length - dim;
  return `[${parts.join(`,${"\n".repeat(left - 1)}${" ".repeat(indent + 1)}`)}]`;
}

function withSuffixes(text: string, suffixes: readonly string[], indent: number): string {
  let length = text.length - text.lastIndexOf("\n") + 1;
  let told = text;
  for (const suffix of suffixes) {
    if (length + suffix.length + 2 > WIDTH) {
      told += `,\n${" ".repeat(indent)}${suffix}`;
      length = indent + suffix.length;
    } else {
      told += `, ${suffix}`;
      length += suffix.length + 2;
    }
  }
  return `${told})`;
}

function tupleText(items: readonly string[]): string {
  return items.length === 1 ? `(${items[0]},)` : `(${items.join(", ")})`;
}

/** A string as Python's repr writes it. */
function quoted(text: string): string {
  const quote = text.includes("'") && !text.includes('"') ? '"' : "'";
  const inner = text
    .replaceAll("\\", "\\\\")
    .replaceAll("\n", "\\n")
    .replaceAll("\t", "\\t")
    .replaceAll("\r", "\\r")
    .replaceAll(quote, `\\${quote}`);
  return quote + inner + quote;
}

/** What shows a tensor: a read of its values. */
export type Show = (tensor: Tensor) => Promise<Shown>;

/** The lists around a value, and how many items may still be written. */
interface Within {
  lists: readonly Value[];
  left: { items: number };
}
const outermost = (): Within => ({ lists: [], left: { items: MOST_ITEMS } });

/** A value as Python's repr writes it. */
export async function reprText(value: Value, show: Show, within: Within = outermost()): Promise<string> {
  if (typeof value === "number") return floatText(value);
  if (typeof value === "bigint") return value.toString();
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value === "string") return quoted(value);
  if (value === null) return "None";
  if (value instanceof Tensor) return tensorText(await show(value));
  if (value instanceof List || value instanceof Tuple) return sequenceText(value, show, within);
  if (value instanceof Dtype) return `torch.${value.name}`;
  if (value instanceof Range)
    return `range(${value.start}, ${value.stop}${value.step === 1n ? "" : `, ${value.step}`})`;
  if (value instanceof GraphNode) return `<${value.name}>`;
  if (value instanceof Ellipsis) return "Ellipsis";
  if (value instanceof SliceValue)
    return `slice(${(await Promise.all([value.start, value.stop, value.step].map((each) => reprText(each, show)))).join(", ")})`;
  if (value instanceof Closure || value instanceof Native) return `<function ${value.name}>`;
  if (value instanceof Module) return `<module '${value.name}'>`;
  return `<${typeName(value)}>`;
}

/** How many items more a long text or a tensor counts for, since their texts are long, and a tensor must be read. */
function weight(value: Value): number {
  if (value instanceof Tensor) return 9;
  return typeof value === "string" ? Math.floor(value.length / 64) : 0;
}

async function sequenceText(value: List | Tuple, show: Show, within: Within): Promise<string> {
  if (within.lists.includes(value) || within.lists.length > DEEPEST) return "[...]";
  const inner = { lists: [...within.lists, value], left: within.left };
  const told: string[] = [];
  for (const each of value.items) {
    if (inner.left.items-- <= 0) {
      told.push("...");
      break;
    }
    inner.left.items -= weight(each);
    told.push(await reprText(each, show, inner));
  }
  if (value instanceof List) return `[${told.join(", ")}]`;
  if (value.type === "torch.Size") return `torch.Size([${told.join(", ")}])`;
  if (value.names.length) {
    return `torch.return_types.${value.type}(\n${told.map((each, i) => `${value.names[i]}=${each}`).join(",\n")})`;
  }
  return tupleText(told);
}

/** A value as Python's str writes it. */
export function strText(value: Value, show: Show): Promise<string> {
  return typeof value === "string" ? Promise.resolve(value) : reprText(value, show);
}
