// The playground without a server: what its language refuses, links, suggestions, and numbers as PyTorch writes them.
import { describe, expect, test } from "vitest";
import { LESSONS } from "../../src/playground/lessons";
import { parse } from "../../src/playground/parse";
import { fixed, floatText, scientific, tensorText } from "../../src/playground/printing";
import { addressOfCode, named } from "../../src/playground/sharing";
import { suggestion } from "../../src/playground/suggestions";
import { CodeError } from "../../src/playground/syntax";

/** The error of code, as "line: type: message". */
function refused(code: string): string {
  try {
    parse(code);
  } catch (error) {
    if (error instanceof CodeError) return `${error.place?.line}: ${error.type}: ${error.message}`;
    throw error;
  }
  return "";
}

describe("the language", () => {
  test("a syntax error is on its line", () => {
    expect(refused("a = 1\nb = (2 +\n")).toBe("2: SyntaxError: invalid syntax");
    expect(refused("a = 1\nb = = 2\nc = 3")).toBe("2: SyntaxError: invalid syntax");
    expect(refused("for i in range(3)\n    pass")).toMatch(/^1: SyntaxError/);
    expect(refused("1 = a")).toMatch(/^1: SyntaxError/);
  });

  test.each([
    ["class A:\n    pass", "class"],
    ["try:\n    pass\nexcept Exception:\n    pass", "try"],
    ["a = {1: 2}", "a dictionary"],
    ["f(**a)", '"**" in a call'],
    ["a = 2j", "a complex literal"],
    ["global a", "global"],
    ["@f\ndef g():\n    pass", "a decorator"],
    ["a = await b", "await"],
    ["with f() as g:\n    pass", "with … as"],
  ])("%j is refused by its name", (code, what) => {
    expect(refused(`x = 1\n${code}`)).toBe(`2: SyntaxError: ${what} is not part of the playground's language`);
  });

  test("code that is too deep or too long is refused", () => {
    expect(refused(`a = ${"(".repeat(500)}1${")".repeat(500)}`)).toContain("too many nested parentheses");
    expect(refused("a".repeat(20_001))).toContain("longer than 20000 characters");
  });

  test("every lesson is of the language, and its check, too", () => {
    for (const { code, task } of LESSONS) {
      expect(refused(code)).toBe("");
      expect(refused(task.kind === "change" ? task.test : task.value)).toBe("");
    }
  });
});

describe("links", () => {
  test("code comes back from its address as it was", async () => {
    const code = 'print("äöü <b>", 1)\n'.repeat(40);
    const address = await addressOfCode(code);
    expect(address).toMatch(/^#\/playground\/code\/[\w-]+$/);
    expect(address.length).toBeLessThan(code.length / 4);
    expect(await named(address)).toEqual({ code });
    expect(await named("#/playground/lesson/leaf")).toEqual({ lesson: "leaf" });
    expect(await named("#/playground")).toBeNull();
  });

  test("a link that expands to too much is refused, and a cut one", async () => {
    const bomb = await addressOfCode("a".repeat(5_000_000));
    expect(bomb.length).toBeLessThan(30_000);
    await expect(named(bomb)).rejects.toThrow("cannot be read");
    await expect(named((await addressOfCode("print(1)")).slice(0, -3))).rejects.toThrow("cannot be read");
  });
});

test("suggestions are near names only", () => {
  const known = ["sigmoid", "softmax", "sin", "tensor"];
  expect(suggestion("sigmoyd", known)).toBe(" Did you mean: 'sigmoid'?");
  expect(suggestion("Tensor", known)).toBe(" Did you mean: 'tensor'?");
  expect(suggestion("frobnicate", known)).toBe("");
  expect(suggestion("x".repeat(10_000), known)).toBe("");
});

test("numbers are rounded as Python rounds them", () => {
  expect([0.03125, 0.09375, 2.5, -0.03125].map((each) => fixed(each, 4))).toEqual([
    "0.0312",
    "0.0938",
    "2.5000",
    "-0.0312",
  ]);
  expect([0.5, 1.5, 2.5].map((each) => fixed(each, 0))).toEqual(["0", "2", "2"]);
  expect([100_005, 100_015, 1e-5].map((each) => scientific(each, 4))).toEqual([
    "1.0000e+05",
    "1.0002e+05",
    "1.0000e-05",
  ]);
  expect([1e16, 1e15, 1e-4, 1e-5, 0.1, -0].map(floatText)).toEqual([
    "1e+16",
    "1000000000000000.0",
    "0.0001",
    "1e-05",
    "0.1",
    "-0.0",
  ]);
});

test("a tensor is written with its flags", () => {
  const shown = { dtype: "float64", shape: [2], numbers: [1, 2.5], requiresGrad: true, gradFn: "" };
  expect(tensorText(shown)).toBe("tensor([1.0000, 2.5000], dtype=torch.float64, requires_grad=True)");
  expect(tensorText({ ...shown, gradFn: "AddBackward0" })).toContain("grad_fn=<AddBackward0>");
});
