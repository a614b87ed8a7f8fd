// Syntax: the playground's language, a closed subset of Python's syntax, as a tree. `parse.ts` makes it of text.

/** Where a part of the code is: its line from 1, and its characters from 0. */
export interface Place {
  line: number;
  from: number;
  to: number;
}

export type Expression = Place &
  (
    | { kind: "name"; name: string }
    | { kind: "literal"; value: bigint | number | string | boolean | null | "..."; ellipsis?: boolean }
    | { kind: "format"; parts: (string | Replacement)[] }
    | { kind: "tuple" | "list"; items: Expression[] }
    | { kind: "comprehension"; item: Expression; target: Expression; over: Expression; tests: Expression[] }
    | { kind: "unary"; sign: string; operand: Expression }
    | { kind: "binary"; sign: string; left: Expression; right: Expression }
    | { kind: "comparison"; first: Expression; rest: { sign: string; operand: Expression }[] }
    | { kind: "logic"; sign: "and" | "or"; left: Expression; right: Expression }
    | { kind: "choice"; test: Expression; chosen: Expression; otherwise: Expression }
    | { kind: "lambda"; parameters: Parameter[]; body: Expression }
    | { kind: "attribute"; object: Expression; name: string }
    | { kind: "item"; object: Expression; items: Expression[]; several: boolean }
    | { kind: "slice"; start?: Expression; stop?: Expression; step?: Expression }
    | { kind: "call"; callee: Expression; given: Argument[] }
    | { kind: "spread"; operand: Expression }
  );

/** `{value!r:spec}` of an f-string; `label` is the text before the value of `{value=}`. */
export interface Replacement {
  value: Expression;
  label: string;
  spec: string;
  repr: boolean;
}

export interface Parameter {
  name: string;
  default?: Expression;
}

/** An argument of a call; its name is empty if it is given by place. */
export interface Argument {
  name: string;
  value: Expression;
}

export type Statement = Place &
  (
    | { kind: "expression"; value: Expression }
    | { kind: "assign"; targets: Expression[]; value: Expression }
    | { kind: "update"; target: Expression; sign: string; value: Expression }
    | { kind: "for"; target: Expression; over: Expression; body: Statement[] }
    | { kind: "while"; test: Expression; body: Statement[] }
    | { kind: "if"; branches: { test?: Expression; body: Statement[] }[] }
    | { kind: "with"; items: Expression[]; body: Statement[] }
    | { kind: "def"; name: string; parameters: Parameter[]; body: Statement[] }
    | { kind: "return"; value?: Expression }
    | { kind: "delete"; names: string[] }
    | { kind: "import"; module: string; names: { name: string; as: string }[] }
    | { kind: "assert"; test: Expression; message?: Expression }
    | { kind: "break" | "continue" | "pass" }
  );

/** An error of the code, as Python names it, and where it is. */
export class CodeError extends Error {
  constructor(
    /** "RuntimeError", "NameError", … */
    readonly type: string,
    message: string,
    public place?: Place,
  ) {
    super(message);
  }
}
