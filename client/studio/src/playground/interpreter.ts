// Interpreter: runs the tree of `syntax.ts`. It computes only with numbers and names itself; every op of a tensor is a
// command to the server. Nothing is evaluated as JavaScript: what a name means is looked up in fixed tables.
//
// Ops are queued, and a statement ends when the server has answered all of them. So an error is told at its statement.
import type { Hook } from "#sdk/autograd";
import type { Session } from "#sdk/session";
import { attributeOf, callMethod, setAttribute } from "./attributes";
import { globalNames, moduleMember, modulePath } from "./builtins";
import { type Catalogue, indexItems } from "./catalogue";
import { inMode } from "./modes";
import { arithmetic, checked, compared } from "./numbers";
import {
  Closure,
  Dtype,
  Ellipsis,
  type Given,
  GraphNode,
  integer,
  isInteger,
  isNumber,
  List,
  Mode,
  Module,
  Native,
  Range,
  Scope,
  SliceValue,
  small,
  Tensor,
  Tuple,
  tensorsIn,
  typeName,
  type Value,
} from "./objects";
import { fixed, reprText, type Show, scientific, strText } from "./printing";
import { suggestion } from "./suggestions";
import { CodeError, type Expression, type Place, type Statement } from "./syntax";

/** What bounds a run. */
export interface Limits {
  steps: number;
  tensors: number;
  bytes: number;
  milliseconds: number;
}

/** What an interpreter tells while it runs. */
export interface Watcher {
  /** A statement that made a value: `name` is what it was assigned to, or empty. `last` is false before a loop's end. */
  value(statement: Statement, name: string, value: Value): Promise<void>;
  printed(line: number, text: string): void;
  warned(line: number, text: string): void;
  /** Wait until the server has answered; resolves with the bytes that the session holds. */
  settled(): Promise<number>;
  show: Show;
  stopped(): boolean;
}

const MOST_CALLS = 40; // nested
const MOST_ITEMS = 100_000; // of a list or a range that is walked

class Break {}
class Continue {}
class Return {
  constructor(readonly value: Value) {}
}
type Outcome = Break | Continue | Return | undefined;

/** A run that was ended because another one begins. */
export class Stopped extends Error {}

export class Interpreter {
  readonly globals = new Scope();
  /** The line of each tensor's statement, by the tensor's id. */
  readonly lines = new Map<number, number>();
  /** The hooks that the code has registered. */
  readonly hooks: Hook[] = [];
  /** The line that runs. */
  line = 0;
  private steps = 0;
  private made = 0;
  private calls = 0;
  private loops = 0; // how many loops are not in their last turn
  private began = performance.now();

  constructor(
    readonly session: Session,
    readonly catalogue: Catalogue,
    readonly watcher: Watcher,
    private readonly limits: Limits,
  ) {
    for (const [name, value] of globalNames(this)) this.globals.names.set(name, value);
  }

  /** Run statements in the outermost scope. Throws a CodeError, an error of the SDK, or Stopped. */
  async run(statements: readonly Statement[]): Promise<void> {
    const outcome = await this.block(statements, this.globals);
    if (outcome instanceof Return) throw new CodeError("SyntaxError", "'return' outside function", statements[0]);
    if (outcome) throw new CodeError("SyntaxError", "'break' or 'continue' outside loop", statements[0]);
  }

  /** The value of an expression in the outermost scope. */
  evaluated(expression: Expression): Promise<Value> {
    [this.steps, this.made, this.began] = [0, 0, performance.now()];
    return this.value(expression, this.globals);
  }

  // Bounds

  private step(place?: Place): void {
    if (this.watcher.stopped()) throw new Stopped();
    if (++this.steps > this.limits.steps)
      throw new CodeError("RuntimeError", `stopped: more than ${this.limits.steps.toLocaleString("en")} steps`, place);
    if (performance.now() - this.began > this.limits.milliseconds)
      throw new CodeError("TimeoutError", `stopped: longer than ${this.limits.milliseconds / 1000} s`, place);
  }

  /** Wait for the server and check what the run holds. */
  private async settle(): Promise<void> {
    const bytes = await this.watcher.settled();
    if (bytes > this.limits.bytes) {
      const most = `${Math.round(this.limits.bytes / (1 << 20))} MiB`;
      throw new CodeError("MemoryError", `stopped: the tensors of the playground hold more than ${most}`);
    }
  }

  /** Apply an op of the server's list. */
  async op(name: string, places: Value[], names: Record<string, Value> = {}): Promise<Value> {
    return this.apply(this.catalogue.op(name), { places, names: new Map(Object.entries(names)) });
  }

  async apply(op: Parameters<Catalogue["apply"]>[1], given: Given): Promise<Value> {
    if (++this.made > this.limits.tensors)
      throw new CodeError("RuntimeError", `stopped: more than ${this.limits.tensors.toLocaleString("en")} ops`);
    const result = await this.catalogue.apply(this.session, op, given);
    for (const each of tensorsIn([result])) if (!this.lines.has(each.id)) this.lines.set(each.id, this.line);
    return result;
  }

  // Statements

  private async block(statements: readonly Statement[], scope: Scope): Promise<Outcome> {
    for (const each of statements) {
      const outcome = await this.placed(each, () => this.statement(each, scope));
      if (outcome) return outcome;
    }
    return undefined;
  }

  /** Run f; an error without a place gets this one. */
  private async placed<T>(place: Place, f: () => Promise<T>): Promise<T> {
    this.step(place);
    this.line = place.line;
    try {
      return await f();
    } catch (error) {
      throw located(error, place);
    }
  }

  private async statement(statement: Statement, scope: Scope): Promise<Outcome> {
    switch (statement.kind) {
      case "expression": {
        const value = await this.value(statement.value, scope);
        await this.settle();
        await this.tell(statement, "", value);
        return undefined;
      }
      case "assign": {
        const value = await this.value(statement.value, scope);
        await this.settle(); // before the assignment: a refused value leaves the name as it was
        for (const target of statement.targets) await this.assign(target, value, scope);
        if (statement.targets.some((each) => each.kind !== "name")) await this.settle();
        for (const target of statement.targets) await this.tellTarget(statement, target, scope);
        return undefined;
      }
      case "update":
        await this.update(statement, scope);
        if (statement.target.kind !== "name") await this.settle();
        await this.tellTarget(statement, statement.target, scope);
        return undefined;
      case "for":
        return this.forLoop(statement, scope);
      case "while":
        return this.whileLoop(statement, scope);
      case "if":
        for (const { test, body } of statement.branches) {
          if (!test || (await this.truth(await this.value(test, scope)))) return this.block(body, scope);
        }
        return undefined;
      case "with":
        return this.withModes(statement.items, 0, scope, () => this.block(statement.body, scope));
      case "def": {
        const defaults = await this.defaults(statement.parameters, scope);
        const { name, parameters, body } = statement;
        scope.names.set(name, new Closure(name, parameters, defaults, body, scope));
        return undefined;
      }
      case "return":
        return new Return(statement.value ? await this.value(statement.value, scope) : null);
      case "delete":
        for (const name of statement.names) {
          if (!scope.names.delete(name)) throw this.unknown(name, scope, statement);
        }
        return undefined;
      case "import":
        this.import(statement.module, statement.names, scope);
        return undefined;
      case "assert":
        if (!(await this.truth(await this.value(statement.test, scope)))) {
          const message = statement.message ? await this.value(statement.message, scope) : "";
          throw new CodeError("AssertionError", await strText(message, this.watcher.show), statement);
        }
        return undefined;
      case "break":
        return new Break();
      case "continue":
        return new Continue();
      case "pass":
        return undefined;
    }
  }

  private async tell(statement: Statement, name: string, value: Value): Promise<void> {
    if (this.loops > 0 || this.calls > 0) return;
    if (value === null && name === "") return;
    await this.watcher.value(statement, name, value);
  }

  /** Tell what a target now is; parts of targets are told as their whole. */
  private async tellTarget(statement: Statement, target: Expression, scope: Scope): Promise<void> {
    if (this.loops > 0 || this.calls > 0) return;
    if (target.kind === "tuple" || target.kind === "list") {
      for (const each of target.items) await this.tellTarget(statement, each, scope);
    } else if (target.kind === "name") {
      await this.tell(statement, target.name, scope.find(target.name) ?? null);
    } else if (target.kind === "item") {
      await this.tellTarget(statement, target.object, scope);
    } else if (target.kind === "attribute" && target.object.kind === "name") {
      const object = await this.value(target.object, scope);
      const value = await attributeOf(this, object, target.name);
      await this.tell(statement, `${target.object.name}.${target.name}`, value);
    }
  }

  private async forLoop(statement: Extract<Statement, { kind: "for" }>, scope: Scope): Promise<Outcome> {
    const items = await this.items(await this.value(statement.over, scope));
    return this.turns(items.length, async (turn) => {
      await this.assign(statement.target, items.at(turn), scope);
      return this.block(statement.body, scope);
    });
  }

  private async whileLoop(statement: Extract<Statement, { kind: "while" }>, scope: Scope): Promise<Outcome> {
    return this.turns(Number.POSITIVE_INFINITY, async () => {
      this.step(statement);
      if (!(await this.truth(await this.value(statement.test, scope)))) return new Break();
      return this.block(statement.body, scope);
    });
  }

  /** Run the turns of a loop. What a turn made and no name has is released after it, but for the last turn. */
  private async turns(count: number, turn: (turn: number) => Promise<Outcome>): Promise<Outcome> {
    for (let i = 0; i < count; i++) {
      const early = Number.isFinite(count) && i < count - 1;
      if (early) this.loops++;
      let outcome: Outcome;
      try {
        outcome = await this.swept(early || !Number.isFinite(count), () => turn(i));
      } finally {
        if (early) this.loops--;
      }
      if (outcome instanceof Break) return undefined;
      if (outcome instanceof Return) return outcome;
    }
    return undefined;
  }

  private async swept(release: boolean, f: () => Promise<Outcome>): Promise<Outcome> {
    if (!release) return f();
    let outcome: Outcome;
    await this.session.tidy(async () => {
      outcome = await f();
      const kept = this.scopes.flatMap((scope) => [...scope.names.values()]);
      if (outcome instanceof Return) kept.push(outcome.value);
      return tensorsIn(kept);
    });
    return outcome;
  }

  /** All scopes in use, whose tensors must live on. */
  private readonly scopes: Scope[] = [this.globals];

  private async update(statement: Extract<Statement, { kind: "update" }>, scope: Scope): Promise<void> {
    const { target, sign } = statement;
    const combined = async (now: Value): Promise<Value> => {
      const value = await this.value(statement.value, scope);
      if (now instanceof Tensor && sign !== "@") return this.inPlace(sign, now, value);
      if (now instanceof List && sign === "+") {
        const added = await this.items(value);
        if (now.items.length + added.length > MOST_ITEMS)
          throw new CodeError("MemoryError", `more than ${MOST_ITEMS} items`);
        for (let i = 0, count = added.length; i < count; i++) now.items.push(added.at(i));
        return now;
      }
      return this.combine(sign, now, value);
    };
    if (target.kind === "attribute") {
      const object = await this.value(target.object, scope);
      setAttribute(object, target.name, await combined(await attributeOf(this, object, target.name)));
    } else if (target.kind === "item") {
      const [object, index] = [await this.value(target.object, scope), await this.index(target, scope)];
      await this.setItem(object, index, await combined(await this.item(object, index)));
    } else if (target.kind === "name") {
      const now = this.lookUp(target.name, scope, target);
      const value = await combined(now);
      await this.settle();
      scope.names.set(target.name, value);
    } else throw new CodeError("SyntaxError", "this expression is an illegal target for augmented assignment", target);
  }

  private inPlace(sign: string, tensor: Tensor, value: Value): Promise<Value> {
    const name = OPS[sign];
    if (!name) throw new CodeError("TypeError", `unsupported operand type(s) for ${sign}=`);
    return this.op(`${name}_`, [tensor, value]);
  }

  private async assign(target: Expression, value: Value, scope: Scope): Promise<void> {
    if (target.kind === "name") {
      scope.names.set(target.name, value);
    } else if (target.kind === "attribute") {
      setAttribute(await this.value(target.object, scope), target.name, value);
    } else if (target.kind === "item") {
      await this.setItem(await this.value(target.object, scope), await this.index(target, scope), value);
    } else if (target.kind === "tuple" || target.kind === "list") {
      const items = await this.items(value, "cannot unpack non-iterable");
      const wanted = target.items.length;
      if (items.length > wanted)
        throw new CodeError("ValueError", `too many values to unpack (expected ${wanted}, got ${items.length})`);
      if (items.length < wanted)
        throw new CodeError("ValueError", `not enough values to unpack (expected ${wanted}, got ${items.length})`);
      for (const [i, each] of target.items.entries()) await this.assign(each, items.at(i), scope);
    }
  }

  private async withModes(
    items: readonly Expression[],
    at: number,
    scope: Scope,
    body: () => Promise<Outcome>,
  ): Promise<Outcome> {
    const item = items[at];
    if (!item) return body();
    const value = await this.value(item, scope);
    if (!(value instanceof Mode)) {
      const sentence = `'${typeName(value)}' object does not support the context manager protocol`;
      throw new CodeError("TypeError", sentence, item);
    }
    return inMode(this.session, value, () => this.withModes(items, at + 1, scope, body));
  }

  private import(module: string, names: readonly { name: string; as: string }[], scope: Scope): void {
    const path = modulePath(module);
    for (const { name, as } of names) {
      if (!name) scope.names.set(as || "torch", new Module(as ? path : ""));
      else scope.names.set(as, moduleMember(this, new Module(path), name));
    }
  }

  // Expressions

  private value(expression: Expression, scope: Scope): Promise<Value> {
    this.step(expression);
    return this.evaluate(expression, scope).catch((error: unknown) => {
      throw located(error, expression);
    });
  }

  private async evaluate(expression: Expression, scope: Scope): Promise<Value> {
    switch (expression.kind) {
      case "name":
        return this.lookUp(expression.name, scope, expression);
      case "literal":
        return expression.ellipsis ? new Ellipsis() : expression.value;
      case "format":
        return this.format(expression.parts, scope);
      case "tuple":
        return new Tuple(await this.values(expression.items, scope));
      case "list":
        return new List(await this.values(expression.items, scope));
      case "comprehension":
        return this.comprehension(expression, scope);
      case "unary":
        return this.unary(expression.sign, await this.value(expression.operand, scope));
      case "binary": {
        const left = await this.value(expression.left, scope);
        return this.combine(expression.sign, left, await this.value(expression.right, scope));
      }
      case "comparison": {
        let left = await this.value(expression.first, scope);
        let result: Value = true;
        for (const [i, { sign, operand }] of expression.rest.entries()) {
          const right = await this.value(operand, scope);
          result = await this.compare(sign, left, right);
          left = right;
          if (i < expression.rest.length - 1 && !(await this.truth(result))) return result;
        }
        return result;
      }
      case "logic": {
        const left = await this.value(expression.left, scope);
        const isTrue = await this.truth(left);
        return isTrue === (expression.sign === "or") ? left : this.value(expression.right, scope);
      }
      case "choice": {
        const isTrue = await this.truth(await this.value(expression.test, scope));
        return this.value(isTrue ? expression.chosen : expression.otherwise, scope);
      }
      case "lambda": {
        const defaults = await this.defaults(expression.parameters, scope);
        return new Closure("<lambda>", expression.parameters, defaults, expression.body, scope);
      }
      case "attribute":
        return attributeOf(this, await this.value(expression.object, scope), expression.name);
      case "item": {
        const object = await this.value(expression.object, scope);
        return this.item(object, await this.index(expression, scope));
      }
      case "slice": {
        const bound = async (each: Expression | undefined) => (each ? await this.value(each, scope) : null);
        return new SliceValue(
          await bound(expression.start),
          await bound(expression.stop),
          await bound(expression.step),
        );
      }
      case "call":
        return this.callExpression(expression, scope);
      case "spread":
        throw new CodeError("SyntaxError", "can't use starred expression here");
    }
  }

  private async values(expressions: readonly Expression[], scope: Scope): Promise<Value[]> {
    const found: Value[] = [];
    for (const each of expressions) found.push(await this.value(each, scope));
    return found;
  }

  private lookUp(name: string, scope: Scope, place: Place): Value {
    const found = scope.find(name);
    if (found === undefined) throw this.unknown(name, scope, place);
    return found;
  }

  private unknown(name: string, scope: Scope, place: Place): CodeError {
    const known: string[] = [];
    for (let each: Scope | null = scope; each; each = each.outer) known.push(...each.names.keys());
    return new CodeError("NameError", `name '${name}' is not defined.${suggestion(name, known)}`, place);
  }

  private async comprehension(
    expression: Extract<Expression, { kind: "comprehension" }>,
    scope: Scope,
  ): Promise<Value> {
    const items = await this.items(await this.value(expression.over, scope));
    const inner = new Scope(scope);
    const found: Value[] = [];
    for (let i = 0; i < items.length; i++) {
      await this.assign(expression.target, items.at(i), inner);
      let wanted = true;
      for (const test of expression.tests) wanted &&= await this.truth(await this.value(test, inner));
      if (wanted) found.push(await this.value(expression.item, inner));
    }
    return new List(found);
  }

  private async format(parts: Extract<Expression, { kind: "format" }>["parts"], scope: Scope): Promise<string> {
    let text = "";
    for (const part of parts) {
      if (typeof part === "string") text += part;
      else {
        const value = await this.value(part.value, scope);
        text += part.label + (await this.formatted(value, part.spec, part.repr || (part.label !== "" && !part.spec)));
      }
      this.bounded(text);
    }
    return text;
  }

  private async formatted(value: Value, spec: string, repr: boolean): Promise<string> {
    if (repr) return reprText(value, this.watcher.show);
    // A tensor of no dimensions is formatted as its number.
    const scalar = value instanceof Tensor && (await this.watcher.show(value)).shape.length === 0;
    const told = scalar ? await callMethod(this, value, "item", { places: [], names: new Map() }) : value;
    if (!spec) return strText(told, this.watcher.show);
    return withSpec(told, spec, await strText(told, this.watcher.show));
  }

  // Operators

  /** Whether Python takes a value as true. */
  async truth(value: Value): Promise<boolean> {
    if (value instanceof Tensor) {
      const { numbers } = await this.watcher.show(value);
      if (numbers.length !== 1) {
        const many = numbers.length > 1 ? "more than one value" : "no values";
        throw new CodeError("RuntimeError", `Boolean value of Tensor with ${many} is ambiguous`);
      }
      return Boolean(numbers[0]);
    }
    if (value instanceof List || value instanceof Tuple) return value.items.length > 0;
    if (value instanceof Range) return value.length > 0;
    return value === null || typeof value !== "object" ? Boolean(value) : true;
  }

  private async unary(sign: string, value: Value): Promise<Value> {
    if (sign === "not") return !(await this.truth(value));
    if (value instanceof Tensor) {
      if (sign === "-") return this.op("neg", [value]);
      if (sign === "~") return this.op("bitwise_not", [value]);
      return value;
    }
    if (isNumber(value)) {
      if (sign === "+") return typeof value === "number" ? value : integer(value);
      if (sign === "-") return typeof value === "number" ? -value : checked(-integer(value));
      if (isInteger(value)) return ~integer(value);
    }
    throw new CodeError("TypeError", `bad operand type for unary ${sign}: '${typeName(value)}'`);
  }

  /** A binary operator. With a tensor it is an op; a number on the left takes Python's reflected op. */
  async combine(sign: string, left: Value, right: Value): Promise<Value> {
    const name = OPS[sign];
    if (name && left instanceof Tensor && (right instanceof Tensor || isNumber(right)))
      return this.op(name, [left, right]);
    if (name && right instanceof Tensor && isNumber(left)) return this.reflected(sign, name, left, right);
    if (isNumber(left) && isNumber(right)) return arithmetic(sign, left, right);
    if (sign === "+" && typeof left === "string" && typeof right === "string") return this.bounded(left + right);
    if (sign === "+" && left instanceof List && right instanceof List)
      return new List(this.boundedItems([...left.items, ...right.items]));
    if (sign === "+" && left instanceof Tuple && right instanceof Tuple)
      return new Tuple(this.boundedItems([...left.items, ...right.items]));
    if (sign === "*" && (left instanceof List || left instanceof Tuple || typeof left === "string") && isInteger(right))
      return this.repeated(left, small(right, "a count"));
    if (sign === "%" && typeof left === "string")
      throw new CodeError("TypeError", 'formatting with "%" is not part of the playground: use f"..."');
    throw new CodeError(
      "TypeError",
      `unsupported operand type(s) for ${sign}: '${typeName(left)}' and '${typeName(right)}'`,
    );
  }

  private async reflected(sign: string, name: string, left: bigint | number | boolean, right: Tensor): Promise<Value> {
    switch (sign) {
      case "+":
      case "*":
      case "&":
      case "|":
      case "^":
        return this.op(name, [right, left]);
      case "-":
        return this.op("rsub", [right, left]);
      case "/":
        return this.op("mul", [await this.op("reciprocal", [right]), left]);
      default:
        return this.op(name, [left, right]);
    }
  }

  private repeated(value: List | Tuple | string, count: number): Value {
    const length = typeof value === "string" ? value.length : value.items.length;
    if (length * count > MOST_ITEMS) throw new CodeError("MemoryError", `more than ${MOST_ITEMS} items`);
    if (typeof value === "string") return value.repeat(Math.max(0, count));
    const items = Array.from({ length: Math.max(0, count) }, () => value.items).flat();
    return value instanceof List ? new List(items) : new Tuple(items);
  }

  private bounded(text: string): string {
    if (text.length > MOST_ITEMS) throw new CodeError("MemoryError", `a string of more than ${MOST_ITEMS} characters`);
    return text;
  }

  private boundedItems(items: Value[]): Value[] {
    if (items.length > MOST_ITEMS) throw new CodeError("MemoryError", `more than ${MOST_ITEMS} items`);
    return items;
  }

  private async compare(sign: string, left: Value, right: Value): Promise<Value> {
    if (sign === "is" || sign === "is not") return same(left, right) === (sign === "is");
    if (sign === "in" || sign === "not in") {
      const items = await this.items(right);
      for (let i = 0; i < items.length; i++) {
        if (await this.truth(await this.compare("==", items.at(i), left))) return sign === "in";
      }
      return sign === "not in";
    }
    const name = COMPARED[sign] as string;
    if (left instanceof Tensor && (right instanceof Tensor || isNumber(right))) return this.op(name, [left, right]);
    if (right instanceof Tensor && isNumber(left))
      return this.op(COMPARED[MIRRORED[sign] as string] as string, [right, left]);
    if (isNumber(left) && isNumber(right)) return compared(sign, left, right);
    if (typeof left === "string" && typeof right === "string") {
      return {
        "==": left === right,
        "!=": left !== right,
        "<": left < right,
        ">": left > right,
        "<=": left <= right,
        ">=": left >= right,
      }[sign] as boolean;
    }
    if (sign === "==" || sign === "!=") return (await this.equal(left, right)) === (sign === "==");
    throw new CodeError(
      "TypeError",
      `'${sign}' not supported between instances of '${typeName(left)}' and '${typeName(right)}'`,
    );
  }

  private async equal(left: Value, right: Value): Promise<boolean> {
    this.step(); // lists in lists can make a comparison long
    if (left === right) return true;
    const lists = (left instanceof List && right instanceof List) || (left instanceof Tuple && right instanceof Tuple);
    if (!lists) return left instanceof Dtype && right instanceof Dtype ? left.value === right.value : left === right;
    if (left.items.length !== right.items.length) return false;
    for (const [i, each] of left.items.entries()) {
      if (!(await this.truth(await this.compare("==", each, right.items[i] ?? null)))) return false;
    }
    return true;
  }

  // Items

  private async index(expression: Extract<Expression, { kind: "item" }>, scope: Scope): Promise<Value> {
    const items = await this.values(expression.items, scope);
    return expression.several ? new Tuple(items) : (items[0] ?? null);
  }

  private async item(object: Value, index: Value): Promise<Value> {
    if (object instanceof Tensor) {
      const made = object.index(...indexItems(index));
      this.lines.set(made.id, this.line);
      return made;
    }
    if (object instanceof List || object instanceof Tuple || object instanceof Range || typeof object === "string") {
      const items = (await this.items(object)).all();
      if (index instanceof SliceValue) {
        const picked = sliced(items, index);
        if (typeof object === "string") return picked.join("");
        return object instanceof Tuple
          ? new Tuple(picked, [], object.type === "torch.Size" ? object.type : "")
          : new List(picked);
      }
      if (!isInteger(index)) {
        throw new CodeError(
          "TypeError",
          `${typeName(object)} indices must be integers or slices, not ${typeName(index)}`,
        );
      }
      const found = items.at(Number(integer(index)));
      if (found === undefined) throw new CodeError("IndexError", `${typeName(object)} index out of range`);
      return found;
    }
    throw new CodeError("TypeError", `'${typeName(object)}' object is not subscriptable`);
  }

  private async setItem(object: Value, index: Value, value: Value): Promise<void> {
    if (object instanceof Tensor) {
      if (!(value instanceof Tensor) && !isNumber(value))
        throw new CodeError("TypeError", `can't assign a ${typeName(value)} to a ${typeName(object)}`);
      await this.op("setitem_", [object, index, value]);
    } else if (object instanceof List && isInteger(index)) {
      const at = Number(integer(index));
      const place = at < 0 ? at + object.items.length : at;
      if (place < 0 || place >= object.items.length)
        throw new CodeError("IndexError", "list assignment index out of range");
      object.items[place] = value;
    } else throw new CodeError("TypeError", `'${typeName(object)}' object does not support item assignment`);
  }

  /** The items of a list, a tuple, a range, a string, or a tensor along its first dimension. */
  async items(value: Value, refused = ""): Promise<Items> {
    if (value instanceof Range) {
      if (value.length > MOST_ITEMS) throw new CodeError("MemoryError", `a range of more than ${MOST_ITEMS} numbers`);
      return new Items(value.length, (i) => value.at(i));
    }
    const listed =
      typeof value === "string" ? [...value] : value instanceof List || value instanceof Tuple ? value.items : null;
    if (listed) return new Items(listed.length, (i) => listed[i] as Value);
    if (value instanceof Tensor) {
      const { shape } = await value.describe();
      const length = shape[0];
      if (length === undefined) throw new CodeError("TypeError", "iteration over a 0-d tensor");
      const made = await this.op("unbind", [value]);
      const rows = made instanceof Tuple ? made.items : [];
      return new Items(rows.length, (i) => rows[i] as Value);
    }
    const sentence = refused ? `${refused} ${typeName(value)} object` : `'${typeName(value)}' object is not iterable`;
    throw new CodeError("TypeError", sentence);
  }

  // Calls

  private async callExpression(expression: Extract<Expression, { kind: "call" }>, scope: Scope): Promise<Value> {
    const { callee } = expression;
    if (callee.kind === "attribute") {
      const object = await this.value(callee.object, scope);
      if (!(object instanceof Module)) {
        const given = await this.given(expression, scope);
        this.line = expression.line;
        return callMethod(this, object, callee.name, given);
      }
      const found = moduleMember(this, object, callee.name);
      return this.call(found, await this.given(expression, scope));
    }
    const found = await this.value(callee, scope);
    return this.call(found, await this.given(expression, scope));
  }

  private async given(expression: Extract<Expression, { kind: "call" }>, scope: Scope): Promise<Given> {
    const given: Given = { places: [], names: new Map() };
    for (const { name, value } of expression.given) {
      if (value.kind === "spread") {
        given.places.push(...(await this.items(await this.value(value.operand, scope))).all());
      } else if (name) {
        if (given.names.has(name)) throw new CodeError("SyntaxError", `keyword argument repeated: ${name}`, value);
        given.names.set(name, await this.value(value, scope));
      } else given.places.push(await this.value(value, scope));
    }
    return given;
  }

  /** Call a function of the code or of the playground. */
  async call(callee: Value, given: Given): Promise<Value> {
    if (callee instanceof Native) return callee.call(given);
    if (!(callee instanceof Closure)) throw new CodeError("TypeError", `'${typeName(callee)}' object is not callable`);
    const scope = new Scope(callee.scope);
    this.bind(callee, given, scope);
    if (++this.calls > MOST_CALLS) {
      this.calls--;
      throw new CodeError("RecursionError", "maximum recursion depth exceeded");
    }
    this.scopes.push(scope);
    const line = this.line;
    try {
      if (!isBlock(callee.body)) return await this.value(callee.body, scope);
      const outcome = await this.block(callee.body, scope);
      return outcome instanceof Return ? outcome.value : null;
    } finally {
      this.line = line;
      this.scopes.pop();
      this.calls--;
    }
  }

  private bind(callee: Closure, given: Given, scope: Scope): void {
    const { name, parameters, defaults } = callee;
    const names = new Map(given.names);
    if (given.places.length > parameters.length) {
      const sentence = `${name}() takes ${parameters.length} positional arguments but ${given.places.length} were given`;
      throw new CodeError("TypeError", sentence);
    }
    parameters.forEach((each, i) => {
      let value = given.places[i];
      if (names.has(each.name)) {
        if (value !== undefined)
          throw new CodeError("TypeError", `${name}() got multiple values for argument '${each.name}'`);
        value = names.get(each.name);
        names.delete(each.name);
      }
      value ??= value === undefined ? defaults[i] : value;
      if (value === undefined)
        throw new CodeError("TypeError", `${name}() missing 1 required positional argument: '${each.name}'`);
      scope.names.set(each.name, value);
    });
    for (const other of names.keys())
      throw new CodeError("TypeError", `${name}() got an unexpected keyword argument '${other}'`);
  }

  private async defaults(
    parameters: readonly { default?: Expression }[],
    scope: Scope,
  ): Promise<(Value | undefined)[]> {
    const found: (Value | undefined)[] = [];
    for (const each of parameters) found.push(each.default ? await this.value(each.default, scope) : undefined);
    return found;
  }
}

/** Items that are walked one by one. */
class Items {
  constructor(
    readonly length: number,
    readonly at: (place: number) => Value,
  ) {}
  all(): Value[] {
    return Array.from({ length: this.length }, (_, i) => this.at(i));
  }
}

const OPS: Record<string, string> = {
  "+": "add",
  "-": "sub",
  "*": "mul",
  "/": "div",
  "//": "floor_divide",
  "%": "remainder",
  "**": "pow",
  "@": "matmul",
  "&": "bitwise_and",
  "|": "bitwise_or",
  "^": "bitwise_xor",
  "<<": "bitwise_left_shift",
  ">>": "bitwise_right_shift",
};
const COMPARED: Record<string, string> = { "==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge" };
const MIRRORED: Record<string, string> = { "==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<=" };

function isBlock(body: Expression | readonly Statement[]): body is readonly Statement[] {
  return Array.isArray(body);
}

function same(left: Value, right: Value): boolean {
  if (left instanceof Tensor && right instanceof Tensor) return left.id === right.id;
  if (left instanceof Dtype && right instanceof Dtype) return left.value === right.value;
  if (left instanceof GraphNode || right instanceof GraphNode) return false;
  return left === right;
}

function sliced(items: readonly Value[], slice: SliceValue): Value[] {
  const bound = (value: Value, otherwise: number) => {
    if (value === null) return otherwise;
    const at = small(value, "slice indices");
    return Math.min(
      Math.max(at < 0 ? at + items.length : at, step > 0 ? 0 : -1),
      step > 0 ? items.length : items.length - 1,
    );
  };
  const step = slice.step === null ? 1 : small(slice.step, "slice indices");
  if (step === 0) throw new CodeError("ValueError", "slice step cannot be zero");
  const [start, stop] = [
    bound(slice.start, step > 0 ? 0 : items.length - 1),
    bound(slice.stop, step > 0 ? items.length : -1),
  ];
  const found: Value[] = [];
  for (let i = start; step > 0 ? i < stop : i > stop; i += step) found.push(items[i] as Value);
  return found;
}

function withSpec(value: Value, spec: string, plain: string): string {
  const found = /^([<>^]?)(\d{0,4})(?:\.(\d{1,2}))?([fed]?)$/.exec(spec);
  if (!found)
    throw new CodeError("ValueError", `Invalid format specifier '${spec}' (the playground has .Nf, .Ne and widths)`);
  const [, align, width, digits, type] = found;
  let text = plain;
  if (type === "f" || type === "e") {
    if (!isNumber(value))
      throw new CodeError("ValueError", `Unknown format code '${type}' for object of type '${typeName(value)}'`);
    text = (type === "f" ? fixed : scientific)(Number(value), Number(digits ?? 6));
  } else if (digits !== undefined && isNumber(value)) {
    text = String(Number(Number(value).toPrecision(Math.max(1, Number(digits)))));
  }
  const wide = Number(width || 0);
  if (align === "^") return text.padStart(text.length + Math.floor(Math.max(0, wide - text.length) / 2)).padEnd(wide);
  return align === "<" || (align === "" && !isNumber(value)) ? text.padEnd(wide) : text.padStart(wide);
}

/** An error with the place where it happened, if it has none. */
function located(error: unknown, place: Place): unknown {
  if (error instanceof CodeError) error.place ??= place;
  return error;
}
