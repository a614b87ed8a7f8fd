// Numbers: Python's arithmetic of ints (bigints, here of 64 bits at most) and floats.
import { integer, isInteger } from "./objects";
import { CodeError } from "./syntax";

type Numeric = bigint | number | boolean;
const MOST_BITS = 63;

/** An integer of the playground. Throws a CodeError if it has more bits than those have. */
export function checked(value: bigint): bigint {
  if (BigInt.asIntN(MOST_BITS + 1, value) !== value)
    throw new CodeError("OverflowError", "the playground's integers have 64 bits");
  return value;
}

function nonZero<T extends bigint | number>(value: T, sentence: string): T {
  if (!value) throw new CodeError("ZeroDivisionError", sentence);
  return value;
}

/** A quotient rounded down, as Python's `//`. */
export function floorDivided(left: bigint, right: bigint): bigint {
  const quotient = left / right;
  return left % right !== 0n && left < 0n !== right < 0n ? quotient - 1n : quotient;
}

/** A binary operator of numbers. */
export function arithmetic(sign: string, left: Numeric, right: Numeric): bigint | number | boolean {
  if (!isInteger(left) || !isInteger(right)) return ofFloats(sign, Number(left), Number(right));
  if (typeof left === "boolean" && typeof right === "boolean") {
    if (sign === "&") return left && right;
    if (sign === "|") return left || right;
    if (sign === "^") return left !== right;
  }
  return ofIntegers(sign, integer(left), integer(right));
}

function ofIntegers(sign: string, left: bigint, right: bigint): bigint | number {
  switch (sign) {
    case "+":
      return checked(left + right);
    case "-":
      return checked(left - right);
    case "*":
      return checked(left * right);
    case "/":
      return Number(left) / Number(nonZero(right, "division by zero"));
    case "//":
      return floorDivided(left, nonZero(right, "integer division or modulo by zero"));
    case "%":
      return left - floorDivided(left, nonZero(right, "integer modulo by zero")) * right;
    case "**":
      return power(left, right);
    case "&":
      return left & right;
    case "|":
      return left | right;
    case "^":
      return left ^ right;
    case "<<":
    case ">>":
      if (right < 0n) throw new CodeError("ValueError", "negative shift count");
      if (sign === ">>") return right > 64n ? (left < 0n ? -1n : 0n) : left >> right;
      if (right > 64n) return left === 0n ? 0n : checked(1n << 64n);
      return checked(left << right);
  }
  throw new CodeError("TypeError", `unsupported operand type(s) for ${sign}: 'int' and 'int'`);
}

function power(base: bigint, exponent: bigint): bigint | number {
  if (exponent < 0n) {
    nonZero(base, "zero to a negative power");
    return Number(base) ** Number(exponent);
  }
  const size = base < 0n ? -base : base;
  if (size > 1n && exponent > 64n) return checked(1n << 64n);
  return checked(base ** (size > 1n ? exponent : exponent % 2n === 0n ? (exponent === 0n ? 0n : 2n) : 1n));
}

function ofFloats(sign: string, left: number, right: number): number {
  switch (sign) {
    case "+":
      return left + right;
    case "-":
      return left - right;
    case "*":
      return left * right;
    case "/":
      return left / nonZero(right, "division by zero");
    case "//":
      return Math.floor(left / nonZero(right, "float floor division by zero"));
    case "%": {
      const rest = left % nonZero(right, "float modulo by zero");
      return rest !== 0 && rest < 0 !== right < 0 ? rest + right : rest;
    }
    case "**": {
      if (left === 0 && right < 0) throw new CodeError("ZeroDivisionError", "zero to a negative power");
      const result = left === 1 || right === 0 ? 1 : left ** right;
      if (Number.isNaN(result) && !Number.isNaN(left) && !Number.isNaN(right))
        throw new CodeError("TypeError", "a power of a negative number is complex, which the playground lacks");
      return result;
    }
  }
  throw new CodeError("TypeError", `unsupported operand type(s) for ${sign}: 'float' and 'float'`);
}

/** A comparison of numbers. */
export function compared(sign: string, left: Numeric, right: Numeric): boolean {
  const [one, other] = [
    typeof left === "boolean" ? Number(left) : left,
    typeof right === "boolean" ? Number(right) : right,
  ];
  switch (sign) {
    case "<":
      return one < other;
    case "<=":
      return one <= other;
    case ">":
      return one > other;
    case ">=":
      return one >= other;
    case "==":
      return one <= other && one >= other; // a bigint equals a number of the same value
    default:
      return !(one <= other && one >= other);
  }
}
