// Parse: text to the tree of `syntax.ts`. Lezer's grammar of Python reads the text; what the tree lacks is refused here.
import { parser } from "@lezer/python";
import { type Argument, CodeError, type Expression, type Parameter, type Place, type Statement } from "./syntax";

type Tree = ReturnType<typeof parser.parse>;
type Node = Tree["topNode"];

/** The longest code that is read, in characters. */
export const MOST_CODE = 20_000;
const MOST_DEPTH = 200; // of nested expressions and blocks

/** Read code. Throws a CodeError at the first line that is not of the language. */
export function parse(code: string): Statement[] {
  if (code.length > MOST_CODE) throw new CodeError("SyntaxError", `the code is longer than ${MOST_CODE} characters`);
  return new Reader(code).program();
}

const SIMPLE: Record<string, "break" | "continue" | "pass"> = {
  BreakStatement: "break",
  ContinueStatement: "continue",
  PassStatement: "pass",
};

class Reader {
  private depth = 0;
  private readonly starts = [0];

  constructor(private readonly code: string) {
    for (let at = code.indexOf("\n"); at >= 0; at = code.indexOf("\n", at + 1)) this.starts.push(at + 1);
  }

  program(): Statement[] {
    const tree = parser.parse(this.code);
    tree.iterate({
      enter: (node) => {
        if (node.type.isError)
          throw new CodeError("SyntaxError", "invalid syntax", this.errorPlace(node.from, node.to));
      },
    });
    return this.statements(tree.topNode);
  }

  // Places

  private lineOf(at: number): number {
    let [low, high] = [0, this.starts.length - 1];
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if ((this.starts[middle] ?? 0) <= at) low = middle;
      else high = middle - 1;
    }
    return low + 1;
  }

  private place(node: { from: number; to: number }): Place {
    return { line: this.lineOf(node.from), from: node.from, to: node.to };
  }

  /** The place of a syntax error: an error at a line's beginning belongs to the line before, which is not complete. */
  private errorPlace(from: number, to: number): Place {
    let at = from;
    while (at > 0 && from === to && /\s/.test(this.code[at - 1] ?? "")) at--;
    return { line: this.lineOf(Math.max(0, from === to ? at - 1 : at)), from: at, to: Math.max(at, to) };
  }

  private text(node: Node): string {
    return this.code.slice(node.from, node.to);
  }

  private unsupported(node: Node, what: string): never {
    throw new CodeError("SyntaxError", `${what} is not part of the playground's language`, this.place(node));
  }

  private nested<T>(node: Node, read: () => T): T {
    if (++this.depth > MOST_DEPTH) throw new CodeError("SyntaxError", "too many nested parentheses", this.place(node));
    try {
      return read();
    } finally {
      this.depth--;
    }
  }

  // Statements

  private statements(parent: Node): Statement[] {
    const found: Statement[] = [];
    for (const node of children(parent)) {
      if (node.name === "StatementGroup") found.push(...this.statements(node));
      else if (!IGNORED.has(node.name)) found.push(this.nested(node, () => this.statement(node)));
    }
    return found;
  }

  private statement(node: Node): Statement {
    const place = this.place(node);
    const parts = children(node);
    const simple = SIMPLE[node.name];
    if (simple) return { ...place, kind: simple };
    switch (node.name) {
      case "ExpressionStatement":
        return { ...place, kind: "expression", value: this.sequence(parts, node) };
      case "AssignStatement":
        return this.assignment(node, parts, place);
      case "UpdateStatement": {
        const at = parts.findIndex((each) => each.name === "UpdateOp");
        const sign = this.text(parts[at] as Node).slice(0, -1);
        const target = this.target(this.sequence(parts.slice(0, at), node));
        return { ...place, kind: "update", target, sign, value: this.sequence(parts.slice(at + 1), node) };
      }
      case "ForStatement": {
        if (parts.some((each) => each.name === "else")) this.unsupported(node, "for … else");
        const at = parts.findIndex((each) => each.name === "in");
        const target = this.target(this.sequence(parts.slice(1, at), node));
        const over = this.sequence(parts.slice(at + 1, -1), node);
        return { ...place, kind: "for", target, over, body: this.body(parts.at(-1) as Node) };
      }
      case "WhileStatement":
        if (parts.some((each) => each.name === "else")) this.unsupported(node, "while … else");
        return { ...place, kind: "while", test: this.one(parts[1]), body: this.body(parts.at(-1) as Node) };
      case "IfStatement":
        return { ...place, kind: "if", branches: this.branches(parts) };
      case "WithStatement": {
        if (parts.some((each) => each.name === "as")) this.unsupported(node, "with … as");
        const items = parts.slice(1, -1).filter((each) => each.name !== ",");
        return {
          ...place,
          kind: "with",
          items: items.map((each) => this.expression(each)),
          body: this.body(parts.at(-1) as Node),
        };
      }
      case "FunctionDefinition": {
        if (parts[0]?.name !== "def") this.unsupported(node, "async");
        const name = this.text(parts[1] as Node);
        const parameters = this.parameters(parts.find((each) => each.name === "ParamList"));
        return { ...place, kind: "def", name, parameters, body: this.body(parts.at(-1) as Node) };
      }
      case "ReturnStatement":
        return {
          ...place,
          kind: "return",
          value: parts.length > 1 ? this.sequence(parts.slice(1), node) : undefined,
        };
      case "DeleteStatement": {
        const names = parts.slice(1).filter((each) => each.name !== ",");
        if (names.some((each) => each.name !== "VariableName")) this.unsupported(node, "del of anything but names");
        return { ...place, kind: "delete", names: names.map((each) => this.text(each)) };
      }
      case "AssertStatement": {
        const [test, , message] = parts.slice(1);
        return { ...place, kind: "assert", test: this.one(test), message: message && this.expression(message) };
      }
      case "ImportStatement":
        return { ...place, kind: "import", ...this.imported(node) };
    }
    return this.unsupported(node, STATEMENTS[node.name] ?? "this statement");
  }

  private assignment(node: Node, parts: Node[], place: Place): Statement {
    const kept = parts.filter((each) => each.name !== "TypeDef");
    const groups: Node[][] = [[]];
    for (const each of kept) {
      if (each.name === "AssignOp") groups.push([]);
      else groups.at(-1)?.push(each);
    }
    if (groups.length < 2) this.unsupported(node, "an annotation without a value");
    const value = this.sequence(groups.at(-1) as Node[], node);
    const targets = groups.slice(0, -1).map((group) => this.target(this.sequence(group, node)));
    return { ...place, kind: "assign", targets, value };
  }

  private target(expression: Expression): Expression {
    switch (expression.kind) {
      case "name":
      case "attribute":
      case "item":
        return expression;
      case "tuple":
      case "list":
        expression.items.forEach((each) => this.target(each));
        return expression;
    }
    throw new CodeError("SyntaxError", "cannot assign to this expression", expression);
  }

  private body(node: Node): Statement[] {
    return this.statements(node);
  }

  private branches(parts: Node[]): { test?: Expression; body: Statement[] }[] {
    const found: { test?: Expression; body: Statement[] }[] = [];
    let test: Expression | undefined;
    for (const each of parts) {
      if (each.name === "Body") found.push({ test, body: this.body(each) });
      else if (each.name === "else") test = undefined;
      else if (each.name !== "if" && each.name !== "elif") test = this.expression(each);
    }
    return found;
  }

  private imported(node: Node): { module: string; names: { name: string; as: string }[] } {
    const words = this.text(node).replace(/[()]/g, " ").trim();
    const whole = /^import\s+([\w.]+)(?:\s+as\s+(\w+))?$/.exec(words);
    if (whole) {
      const module = whole[1] as string;
      return { module, names: [{ name: "", as: whole[2] ?? "" }] };
    }
    const part = /^from\s+([\w.]+)\s+import\s+(.+)$/.exec(words);
    const names = part?.[2]?.split(",").map((each) => /^\s*(\w+)(?:\s+as\s+(\w+))?\s*$/.exec(each));
    if (!part || !names?.every((each) => each !== null)) this.unsupported(node, "this import");
    return {
      module: part[1] as string,
      names: (names as RegExpExecArray[]).map((each) => ({
        name: each[1] as string,
        as: each[2] ?? (each[1] as string),
      })),
    };
  }

  private parameters(list: Node | undefined): Parameter[] {
    const found: Parameter[] = [];
    const parts = list ? children(list) : [];
    parts.forEach((each, at) => {
      if (each.name === "*" || each.name === "**" || each.name === "/") this.unsupported(each, `"${each.name}"`);
      if (each.name !== "VariableName") return;
      if (parts[at - 1]?.name === "AssignOp") return; // a default that is a name
      const after = parts.slice(at + 1).filter((other) => other.name !== "TypeDef");
      const hasDefault = after[0]?.name === "AssignOp";
      found.push({ name: this.text(each), default: hasDefault ? this.one(after[1]) : undefined });
    });
    return found;
  }

  // Expressions

  private one(node: Node | undefined): Expression {
    if (!node) throw new CodeError("SyntaxError", "invalid syntax");
    return this.expression(node);
  }

  /** One expression, or several with commas between them, which are a tuple. */
  private sequence(parts: Node[], parent: Node): Expression {
    const items = parts.filter((each) => each.name !== "," && each.name !== "(" && each.name !== ")");
    const starred = items.some((each) => each.name === "*");
    if (starred) this.unsupported(parent, '"*" outside of a call');
    if (items.length === 1 && !parts.some((each) => each.name === ",")) return this.one(items[0]);
    const first = items[0] ?? parent;
    const place = { ...this.place(first), to: (items.at(-1) ?? parent).to };
    return { ...place, kind: "tuple", items: items.map((each) => this.expression(each)) };
  }

  private expression(node: Node): Expression {
    return this.nested(node, () => this.read(node));
  }

  private read(node: Node): Expression {
    const place = this.place(node);
    const parts = children(node);
    switch (node.name) {
      case "VariableName":
        return { ...place, kind: "name", name: this.text(node) };
      case "Number":
        return { ...place, kind: "literal", value: this.number(node) };
      case "Boolean":
        return { ...place, kind: "literal", value: this.text(node) === "True" };
      case "None":
        return { ...place, kind: "literal", value: null };
      case "Ellipsis":
        return { ...place, kind: "literal", value: "...", ellipsis: true };
      case "String":
        return { ...place, kind: "literal", value: this.string(node) };
      case "ContinuedString":
        return this.joined(node, parts);
      case "FormatString":
        return this.format(node, parts);
      case "ParenthesizedExpression":
        return this.one(parts.find((each) => each.name !== "(" && each.name !== ")"));
      case "TupleExpression":
      case "ArrayExpression": {
        const items = parts.filter((each) => !"()[],".includes(each.name));
        if (items.some((each) => each.name === "*")) this.unsupported(node, '"*" in a list');
        const kind = node.name === "TupleExpression" ? "tuple" : "list";
        return { ...place, kind, items: items.map((each) => this.expression(each)) };
      }
      case "ArrayComprehensionExpression":
      case "ComprehensionExpression":
        return this.comprehension(node, parts, place);
      case "UnaryExpression":
        return { ...place, kind: "unary", sign: this.text(parts[0] as Node), operand: this.one(parts[1]) };
      case "BinaryExpression":
        return this.binary(node, parts, place);
      case "ConditionalExpression":
        return {
          ...place,
          kind: "choice",
          chosen: this.one(parts[0]),
          test: this.one(parts[2]),
          otherwise: this.one(parts[4]),
        };
      case "LambdaExpression": {
        const list = parts.find((each) => each.name === "ParamList");
        return { ...place, kind: "lambda", parameters: this.parameters(list), body: this.one(parts.at(-1)) };
      }
      case "MemberExpression":
        return this.member(node, parts, place);
      case "CallExpression": {
        const callee = this.one(parts[0]);
        return { ...place, kind: "call", callee, given: this.given(parts[1] as Node) };
      }
    }
    return this.unsupported(node, EXPRESSIONS[node.name] ?? `"${this.text(node).slice(0, 20)}"`);
  }

  private binary(node: Node, parts: Node[], place: Place): Expression {
    const signs = parts.slice(1, -1).map((each) => this.text(each));
    const sign = signs.join(" ");
    const [left, right] = [this.one(parts[0]), this.one(parts.at(-1))];
    if (sign === "and" || sign === "or") return { ...place, kind: "logic", sign, left, right };
    if (!COMPARISONS.has(sign)) return { ...place, kind: "binary", sign, left, right };
    // Python compares in a row: a < b < c. The grammar nests to the left.
    const inRow = left.kind === "comparison" && children(node)[0]?.name === "BinaryExpression";
    if (inRow)
      return { ...place, kind: "comparison", first: left.first, rest: [...left.rest, { sign, operand: right }] };
    return { ...place, kind: "comparison", first: left, rest: [{ sign, operand: right }] };
  }

  private member(node: Node, parts: Node[], place: Place): Expression {
    const object = this.one(parts[0]);
    if (parts[1]?.name === ".") return { ...place, kind: "attribute", object, name: this.text(parts[2] as Node) };
    const inner = parts.slice(2, -1);
    const groups: Node[][] = [[]];
    for (const each of inner) {
      if (each.name === ",") groups.push([]);
      else groups.at(-1)?.push(each);
    }
    const several = groups.length > 1;
    const items = groups.filter((group) => group.length > 0).map((group) => this.indexItem(group, node));
    return { ...place, kind: "item", object, items, several };
  }

  private indexItem(group: Node[], node: Node): Expression {
    const place = { ...this.place(group[0] ?? node), to: (group.at(-1) ?? node).to };
    if (!group.some((each) => each.name === ":")) {
      if (group.length !== 1) this.unsupported(node, "this index");
      return this.one(group[0]);
    }
    const bounds: (Expression | undefined)[] = [undefined];
    for (const each of group) {
      if (each.name === ":") bounds.push(undefined);
      else bounds[bounds.length - 1] = this.expression(each);
    }
    const [start, stop, step] = bounds;
    return { ...place, kind: "slice", start, stop, step };
  }

  private given(list: Node): Argument[] {
    const groups: Node[][] = [[]];
    for (const each of children(list).slice(1, -1)) {
      if (each.name === ",") groups.push([]);
      else groups.at(-1)?.push(each);
    }
    return groups
      .filter((group) => group.length > 0)
      .map((group): Argument => {
        const [first, second, third] = group as [Node, Node?, Node?];
        if (second?.name === "AssignOp") return { name: this.text(first), value: this.one(third) };
        if (first.name === "*" && second) {
          const operand = this.expression(second);
          return { name: "", value: { ...this.place(second), kind: "spread", operand } };
        }
        if (first.name === "**") this.unsupported(first, '"**" in a call');
        if (group.some((each) => each.name === "for")) {
          return { name: "", value: this.comprehension(list, group, this.place(first)) };
        }
        return { name: "", value: this.expression(first) };
      });
  }

  private comprehension(node: Node, parts: Node[], place: Place): Expression {
    const inner = parts.filter((each) => !"()[]".includes(each.name));
    const names = inner.map((each) => each.name);
    if (names.filter((each) => each === "for").length !== 1 || names.includes("async"))
      this.unsupported(node, "a comprehension with several loops");
    const [loop, among] = [names.indexOf("for"), names.indexOf("in")];
    const tests = inner.filter((_, at) => names[at - 1] === "if").map((each) => this.expression(each));
    return {
      ...place,
      kind: "comprehension",
      item: this.one(inner[0]),
      target: this.target(this.sequence(inner.slice(loop + 1, among), node)),
      over: this.one(inner[among + 1]),
      tests,
    };
  }

  // Literals

  private number(node: Node): bigint | number {
    const text = this.text(node).replaceAll("_", "").toLowerCase();
    if (text.endsWith("j")) this.unsupported(node, "a complex literal");
    if (/^(0x[0-9a-f]+|0o[0-7]+|0b[01]+|\d+)$/.test(text)) {
      if (/^0\d/.test(text) && !/^0+$/.test(text)) {
        throw new CodeError(
          "SyntaxError",
          "leading zeros in decimal integer literals are not permitted",
          this.place(node),
        );
      }
      return BigInt(text);
    }
    return Number(text);
  }

  private string(node: Node): string {
    const found = /^([a-z]*)('''|"""|'|")([\s\S]*)\2$/i.exec(this.text(node));
    if (!found) throw new CodeError("SyntaxError", "unterminated string literal", this.place(node));
    const [, prefix = "", , inner = ""] = found;
    if (/b/i.test(prefix)) this.unsupported(node, "bytes");
    return /r/i.test(prefix) ? inner : unescaped(inner);
  }

  private joined(node: Node, parts: Node[]): Expression {
    const place = this.place(node);
    const read = parts.map((each) => this.expression(each));
    const pieces = read.flatMap((each) =>
      each.kind === "format" ? each.parts : each.kind === "literal" ? [String(each.value)] : [],
    );
    return { ...place, kind: "format", parts: pieces };
  }

  private format(node: Node, parts: Node[]): Expression {
    const quote = /^[a-z]+('''|"""|'|")/i.exec(this.text(node));
    if (!quote) throw new CodeError("SyntaxError", "unterminated f-string literal", this.place(node));
    const raw = /r/i.test(quote[0]);
    const plain = (from: number, to: number) => {
      const text = this.code.slice(from, to).replaceAll("{{", "{").replaceAll("}}", "}");
      return raw ? text : unescaped(text);
    };
    const pieces: Extract<Expression, { kind: "format" }>["parts"] = [];
    let at = node.from + quote[0].length;
    for (const each of parts.filter((part) => part.name === "FormatReplacement")) {
      pieces.push(plain(at, each.from));
      const inner = children(each);
      const spec = inner.find((part) => part.name === "FormatSpec");
      const self = inner.find((part) => part.name === "FormatSelfDoc");
      const conversion = inner.find((part) => part.name === "FormatConversion");
      if (spec && children(spec).some((part) => part.name === "FormatReplacement"))
        this.unsupported(spec, "a nested replacement");
      const value = this.one(inner[1]);
      pieces.push({
        value,
        label: self ? this.code.slice(each.from + 1, self.to) : "",
        spec: spec ? this.text(spec).slice(1) : "",
        repr: conversion !== undefined && this.text(conversion) !== "!s",
      });
      at = each.to;
    }
    pieces.push(plain(at, node.to - (quote[1] as string).length));
    return { ...this.place(node), kind: "format", parts: pieces };
  }
}

const IGNORED = new Set(["Comment", ";", ":", "⚠"]);
const COMPARISONS = new Set(["<", ">", "<=", ">=", "==", "!=", "is", "is not", "in", "not in"]);
const STATEMENTS: Record<string, string> = {
  TryStatement: "try",
  ClassDefinition: "class",
  RaiseStatement: "raise",
  ScopeStatement: "global",
  DecoratedStatement: "a decorator",
  MatchStatement: "match",
  TypeDefinition: "type",
};
const EXPRESSIONS: Record<string, string> = {
  DictionaryExpression: "a dictionary",
  SetExpression: "a set",
  DictionaryComprehensionExpression: "a dictionary",
  SetComprehensionExpression: "a set",
  AwaitExpression: "await",
  YieldExpression: "yield",
  NamedExpression: '":="',
};

function children(node: Node): Node[] {
  const found: Node[] = [];
  for (let each = node.firstChild; each; each = each.nextSibling) if (each.name !== "Comment") found.push(each);
  return found;
}

const ESCAPES: Record<string, string> = {
  n: "\n",
  t: "\t",
  r: "\r",
  "\\": "\\",
  "'": "'",
  '"': '"',
  "\n": "",
  "0": "\0",
};

function unescaped(text: string): string {
  return text.replace(/\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|[\s\S])/g, (whole, mark: string) => {
    if (/^[xu]./.test(mark)) return String.fromCharCode(Number.parseInt(mark.slice(1), 16));
    return ESCAPES[mark] ?? whole;
  });
}
