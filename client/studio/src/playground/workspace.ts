// Workspace: the playground's own session and its runs. One run at a time: a new one ends the run before it and frees
// its tensors. The session begins with the first run and ends with the page; its lease ends it if the page cannot.
import { GradMode } from "#contract/types_pb";
import {
  GradwireConnectionError,
  GradwireError,
  GradwireIndexError,
  GradwireMemoryError,
  GradwireNotImplementedError,
  GradwirePermissionError,
  GradwireTimeoutError,
  GradwireTypeError,
  GradwireValueError,
  Reason,
} from "#sdk/errors";
import type { Session } from "#sdk/session";
import { nameOf, typedArray } from "#sdk/values";
import type { Catalogue } from "./catalogue";
import { Interpreter, type Limits, Stopped } from "./interpreter";
import { Closure, List, Module, Native, Tensor, Tuple, type Value } from "./objects";
import { parse } from "./parse";
import { reprText, type Shown, tensorText } from "./printing";
import { CodeError, type Statement } from "./syntax";

export const LIMITS: Limits = { steps: 100_000, tensors: 10_000, bytes: 64 << 20, milliseconds: 20_000 };
const MOST_SHOWN = 1 << 18; // elements of a tensor whose values are fetched
const MOST_NOTES = 400;
const MOST_OUTPUT = 200_000; // characters of all notes
const SEED = 0n; // every run begins with it, so that values stay while code is typed

/** What a line has to tell. */
export interface Note {
  line: number;
  kind: "value" | "printed" | "warning" | "error";
  text: string;
  /** What the value was assigned to. */
  name?: string;
}

/** A name of the code after the run. */
export interface Variable {
  name: string;
  text: string;
  /** The tensor's id in the session; 0 for other values. */
  tensor: number;
  /** Its values, and those of its gradient; absent where they are not there or too many. */
  shown?: Shown;
  gradient?: Shown;
}

export interface Result {
  notes: Note[];
  variables: Variable[];
  /** The session and its last tensor with a name, for the graph. */
  session: string;
  last: number;
  /** Lines of the code by tensor, for the graph's tips. */
  lines: ReadonlyMap<number, number>;
  milliseconds: number;
  surface: Surface | null;
}

/** A function of two numbers on a grid, and the path of a descent on it. */
export interface Surface {
  size: number;
  from: [number, number];
  to: [number, number];
  heights: Float64Array;
  path: [number, number][];
}

export type Connect = () => Promise<{ session: Session; catalogue: Catalogue }>;

interface Open {
  session: Session;
  catalogue: Catalogue;
}

export class Workspace {
  private open: Promise<Open> | null = null;
  private turn = 0;
  private running: Promise<unknown> = Promise.resolve();
  private busy: Session | null = null;
  private latest: Result | null = null;
  private latestTurn = 0;
  /** The session's id, to end it while the page is left; empty while none is open. */
  sessionId = "";
  private interpreter: Interpreter | null = null;
  private finish: () => void = () => {};
  private scope: Promise<unknown> = Promise.resolve(); // that of the last run's tensors
  private closed = false;

  constructor(private readonly connect: Connect) {}

  /** Run code. Resolves with null if another run began meanwhile. Rejects if the server cannot be used. */
  async run(code: string): Promise<Result | null> {
    const mine = ++this.turn;
    const stale = () => mine !== this.turn || this.closed;
    let statements: Statement[];
    try {
      statements = parse(code);
    } catch (error) {
      return this.keep({ ...EMPTY, notes: [errorNote(error)] });
    }
    await this.busy?.cancel().catch(() => {}); // that run's own error tells what is wrong with the session
    const mineToo = this.running.then(() => this.attempts(statements, stale));
    this.running = mineToo.catch(() => {}); // told to this run's caller
    return mineToo;
  }

  /** Run; once more in a new session, if the one of earlier runs is gone. */
  private async attempts(statements: Statement[], stale: () => boolean): Promise<Result | null> {
    const again = this.open !== null;
    try {
      return await this.attempt(statements, stale);
    } catch (error) {
      void this.forget();
      if (stale()) return null;
      if (!again || !isLost(error)) throw error;
    }
    try {
      return await this.attempt(statements, stale);
    } catch (error) {
      void this.forget();
      if (stale()) return null;
      throw error;
    }
  }

  private async attempt(statements: Statement[], stale: () => boolean): Promise<Result | null> {
    if (stale()) return null;
    this.open ??= this.connect();
    const { session, catalogue } = await this.open;
    this.sessionId = session.id;
    await this.clear(session);
    if (stale()) return null;
    const result = await this.started(session, catalogue, statements, stale);
    return result && !stale() ? this.keep(result) : null;
  }

  private keep(result: Result): Result {
    [this.latest, this.latestTurn] = [result, this.turn];
    return result;
  }

  /** Whether no run has begun since a result. A later one frees its tensors. */
  isLatest(result: Result): boolean {
    return result === this.latest && this.turn === this.latestTurn;
  }

  /** The value of an expression after the last run, a tensor as its truth. Throws what the expression throws. */
  async asked(expression: string): Promise<Value> {
    const { interpreter } = this;
    const [statement] = parse(expression);
    if (!interpreter || statement?.kind !== "expression") throw new CodeError("RuntimeError", "there is no run to ask");
    try {
      const value = await interpreter.evaluated(statement.value);
      return value instanceof Tensor ? await interpreter.truth(value) : value;
    } catch (error) {
      throw isLost(error) ? error : codeError(error);
    }
  }

  /** Let go of a session that cannot be used. Resolves when it is closed; never rejects. */
  private forget(): Promise<void> {
    const { open } = this;
    this.open = null;
    this.interpreter = null;
    this.sessionId = "";
    this.finish();
    // It may be only this page that cannot use it. Its lease ends it if this does not.
    return Promise.resolve(open?.then(({ session }) => session.close())).catch(() => {});
  }

  /** End the session. */
  async close(): Promise<void> {
    this.closed = true;
    this.turn++;
    await this.busy?.cancel().catch(() => {}); // the close below ends it, too
    await this.running;
    await this.forget();
  }

  /** Free what the last run made. */
  private async clear(session: Session): Promise<void> {
    for (const hook of this.interpreter?.hooks ?? []) hook.remove();
    this.interpreter = null;
    this.finish();
    this.finish = () => {};
    await this.scope; // so that what is freed goes before the next commands
    session.gradMode = GradMode.UNSPECIFIED;
    session.manualSeed(SEED);
    try {
      await session.wait();
    } catch (error) {
      if (isLost(error)) throw error; // an older failure of the code before is told already
    }
  }

  private started(
    session: Session,
    catalogue: Catalogue,
    statements: Statement[],
    stale: () => boolean,
  ): Promise<Result | null> {
    const run = new Run(session, catalogue, stale);
    this.interpreter = run.interpreter;
    this.busy = session;
    return new Promise((resolve, reject) => {
      // Everything that the run makes lives in this scope, until the next run begins.
      this.scope = session
        .tidy(async () => {
          const over = new Promise<void>((end) => {
            this.finish = end;
          });
          try {
            resolve(await run.result(statements));
          } catch (error) {
            reject(error);
          } finally {
            this.busy = null;
          }
          await over;
        })
        .catch(reject);
    });
  }
}

/** A single run. */
class Run {
  readonly interpreter: Interpreter;
  private readonly notes: Note[] = [];
  private last = 0;
  private output = 0;
  private shortened = false;
  private readonly given: ReadonlySet<string>;
  private readonly began = performance.now();

  constructor(
    private readonly session: Session,
    catalogue: Catalogue,
    stopped: () => boolean,
  ) {
    this.interpreter = new Interpreter(
      session,
      catalogue,
      {
        value: (statement, name, value) => this.told(statement, name, value),
        printed: (line, text) => this.note({ line, kind: "printed", text: text.replace(/\n$/, "") }),
        warned: (line, text) => this.note({ line, kind: "warning", text }),
        settled: () => settled(session),
        show: shownOf,
        stopped,
      },
      LIMITS,
    );
    this.given = new Set(this.interpreter.globals.names.keys());
  }

  /** Run, and read what is shown; null if it was stopped. */
  async result(statements: Statement[]): Promise<Result | null> {
    try {
      await this.interpreter.run(statements);
    } catch (error) {
      if (error instanceof Stopped || (error instanceof GradwireError && error.reason === Reason.CANCELLED))
        return null;
      if (isLost(error)) throw error;
      const found = codeError(error);
      this.note({ ...errorNote(found), line: found.place?.line ?? this.interpreter.line });
      await this.session.wait().catch((later: unknown) => {
        if (isLost(later)) throw later; // failures that follow from the one above
      });
    }
    this.session.gradMode = GradMode.UNSPECIFIED;
    const variables = await this.variables();
    return {
      notes: this.notes,
      variables,
      session: this.session.id,
      last: this.last,
      lines: this.interpreter.lines,
      surface: await this.surface(),
      milliseconds: performance.now() - this.began,
    };
  }

  private note(note: Note): void {
    // A loop tells a line's value again; prints and errors are all kept.
    const same = this.notes.find(
      (each) =>
        each.kind !== "printed" && each.kind === note.kind && each.line === note.line && each.name === note.name,
    );
    if (same) same.text = note.text;
    else if (note.kind === "error" || (this.notes.length < MOST_NOTES && this.output < MOST_OUTPUT)) {
      this.output += note.text.length;
      this.notes.push(note);
    } else if (!this.shortened) {
      this.shortened = true;
      this.notes.push({ line: note.line, kind: "warning", text: "There is more output than the playground shows." });
    }
  }

  private async told(statement: Statement, name: string, value: Value): Promise<void> {
    if (value instanceof Closure || value instanceof Native) return;
    if (value instanceof Tensor) this.last = value.id;
    this.note({ line: statement.line, kind: "value", name, text: await valueText(value) });
  }

  private async variables(): Promise<Variable[]> {
    const found: Variable[] = [];
    for (const [name, value] of this.interpreter.globals.names) {
      if (value instanceof Closure || value instanceof Native || (this.given.has(name) && value instanceof Module))
        continue;
      if (value instanceof Tensor) found.push(await this.tensor(name, value));
      else found.push({ name, text: await valueText(value), tensor: 0 });
    }
    return found;
  }

  private async tensor(name: string, value: Tensor): Promise<Variable> {
    const shown = await shownOf(value).catch(tooLarge);
    const gradient = shown && (await value.hasGrad()) ? await shownOf(value.grad as Tensor) : undefined;
    return { name, text: shown ? tensorText(shown) : await valueText(value), tensor: value.id, shown, gradient };
  }

  /** The surface of the code's function `f` of two numbers, with the points of its list `path`. */
  private async surface(): Promise<Surface | null> {
    const { names } = this.interpreter.globals;
    const [f, points] = [names.get("f"), names.get("path")];
    if (!(f instanceof Closure) || f.parameters.length !== 2 || !(points instanceof List)) return null;
    const path = points.items.map(pointOf).filter((each) => each !== null);
    if (!path.length) return null;
    return sampled(this.interpreter, f, path).catch((error: unknown) => {
      if (isLost(error)) throw error;
      return null; // the function fits no grid, so there is nothing to draw
    });
  }
}

const EMPTY: Result = {
  notes: [],
  variables: [],
  session: "",
  last: 0,
  lines: new Map(),
  milliseconds: 0,
  surface: null,
};

/** Wait for all commands; resolves with the bytes that the session holds. Throws the first refusal. */
async function settled(session: Session): Promise<number> {
  const answer = await session.ask({ case: "describe", value: { tensors: [] } });
  return answer.case === "describe" ? Number(answer.value.bytes) : 0;
}

/** A tensor's values and flags. Throws a CodeError if it is too large to be fetched. */
async function shownOf(tensor: Tensor): Promise<Shown> {
  const told = await tensor.describe();
  const { shape, requiresGrad, gradFn } = told;
  const dtype = nameOf(told.dtype);
  if (shape.reduce((product, size) => product * size, 1) > MOST_SHOWN) throw new TooLarge(shape, dtype);
  return { dtype, shape, requiresGrad, gradFn, numbers: typedArray(await tensor.read()) };
}

class TooLarge extends CodeError {
  constructor(
    readonly shape: readonly number[],
    readonly dtype: string,
  ) {
    super("MemoryError", `the playground fetches at most ${MOST_SHOWN.toLocaleString("en")} values of a tensor`);
  }
}

function tooLarge(error: unknown): undefined {
  if (error instanceof TooLarge) return undefined;
  throw error;
}

/** A value in one line or a few. */
async function valueText(value: Value): Promise<string> {
  try {
    return await reprText(value, shownOf);
  } catch (error) {
    if (error instanceof TooLarge) return `tensor of shape (${error.shape.join(", ")}), torch.${error.dtype}`;
    throw error;
  }
}

// Errors

const TYPES: [typeof GradwireError, string][] = [
  [GradwireTypeError, "TypeError"],
  [GradwireValueError, "ValueError"],
  [GradwireIndexError, "IndexError"],
  [GradwireNotImplementedError, "NotImplementedError"],
  [GradwireMemoryError, "MemoryError"],
  [GradwireTimeoutError, "TimeoutError"],
];

/** An error of the code. Throws what is no such error: a defect of the page. */
export function codeError(error: unknown): CodeError {
  if (error instanceof CodeError) return error;
  if (!(error instanceof GradwireError)) throw error;
  return new CodeError(TYPES.find(([type]) => error instanceof type)?.[1] ?? "RuntimeError", error.message);
}

function errorNote(error: unknown): Note {
  const found = codeError(error);
  return { line: found.place?.line ?? 1, kind: "error", text: `${found.type}: ${found.message}` };
}

/** Whether the session, the server or the login is gone, so that the code is not to blame. */
export function isLost(error: unknown): boolean {
  if (error instanceof GradwireConnectionError || error instanceof GradwirePermissionError) return true;
  const lost = [Reason.SESSION_NOT_FOUND, Reason.SESSION_EXPIRED, Reason.SESSION_LIMIT];
  return error instanceof GradwireError && (lost.includes(error.reason) || error.message === "the session is closed");
}

// Surfaces

const GRID = 41;
const MOST_POINTS = 2000;

function pointOf(value: Value): [number, number] | null {
  if (!(value instanceof List || value instanceof Tuple) || value.items.length !== 2) return null;
  const [x, y] = value.items.map(Number);
  return Number.isFinite(x) && Number.isFinite(y) ? [x as number, y as number] : null;
}

async function sampled(interpreter: Interpreter, f: Closure, whole: [number, number][]): Promise<Surface | null> {
  const path = whole.slice(0, MOST_POINTS);
  const ends = (axis: 0 | 1): [number, number] => {
    const values = path.map((each) => each[axis]);
    const [least, most] = [Math.min(...values), Math.max(...values)];
    const room = Math.max((most - least) * 0.6, 0.5);
    return [least - room, most + room];
  };
  const [[left, right], [low, high]] = [ends(0), ends(1)];
  const { session } = interpreter;
  const axis = (from: number, to: number, shape: number[]) => {
    const values = Float32Array.from({ length: GRID }, (_, i) => from + ((to - from) * i) / (GRID - 1));
    return session.tensor(values, { shape });
  };
  session.gradMode = GradMode.DISABLED;
  try {
    const places = [axis(left, right, [1, GRID]), axis(low, high, [GRID, 1])];
    const value = await interpreter.call(f, { places, names: new Map() });
    if (!(value instanceof Tensor)) return null;
    const full = await interpreter.op("expand", [value, new List([BigInt(GRID), BigInt(GRID)])]);
    const heights = Float64Array.from((await shownOf(full as Tensor)).numbers as Float32Array);
    return { size: GRID, from: [left, low], to: [right, high], heights, path };
  } finally {
    session.gradMode = GradMode.UNSPECIFIED;
  }
}
