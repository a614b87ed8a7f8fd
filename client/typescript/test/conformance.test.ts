/** Runs the scenarios of tests/conformance, whose README.md describes the steps. */

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { after, test } from "node:test";
import {
  backward,
  Call,
  Complex,
  CustomFunction,
  connect,
  DType,
  type FunctionContext,
  GradwireError,
  grad,
  type Hook,
  type IndexItem,
  nameOf,
  type Program,
  ProgramNumber,
  Reason,
  type Session,
  Slice,
  type Tensor,
} from "../src/node.js";
import { ADDRESS, CONFORMANCE, cutting, NO_PROXY, NO_SERVER } from "./support.js";

// biome-ignore lint/suspicious/noExplicitAny: the steps are data whose fields depend on `do`
type Step = Record<string, any>;

interface Scenario {
  name: string;
  steps: Step[];
  cuts?: [number, number];
  lease_ms?: number;
}

class HookError extends Error {}

/** Its derivative has a factor of the step. */
class Square extends CustomFunction {
  constructor(private readonly factor: number) {
    super("Square");
  }

  override forward(context: FunctionContext, x: Tensor): Tensor {
    context.save(x);
    return x.mul(x);
  }

  override backward(context: FunctionContext, gradient: Tensor): Tensor {
    return gradient.mul(context.saved[0] as Tensor).mul(this.factor);
  }
}

const report: Record<string, string> = {};
const folder = join(CONFORMANCE, "scenarios");
for (const file of NO_SERVER ? [] : readdirSync(folder).sort()) {
  for (const scenario of JSON.parse(readFileSync(join(folder, file), "utf8")) as Scenario[]) {
    const name = `${basename(file, ".json")}: ${scenario.name}`;
    const skip = scenario.cuts ? NO_PROXY : NO_SERVER;
    test(name, { skip, timeout: 60_000 }, async () => {
      report[name] = "failed";
      await run(scenario);
      report[name] = "ok";
    });
  }
}

after(() => {
  const path = process.env["GRADWIRE_CONFORMANCE_REPORT"];
  if (path && !NO_SERVER) writeFileSync(path, JSON.stringify(report));
});

async function run(scenario: Scenario): Promise<void> {
  const proxy = scenario.cuts && (await cutting(...scenario.cuts));
  const options = { lease: (scenario.lease_ms ?? 0) / 1000, localStream: !proxy };
  const session = await connect(proxy?.address ?? ADDRESS, options);
  const runner = new Runner(session);
  for (const [place, step] of scenario.steps.entries()) {
    try {
      await runner.checked(step);
    } catch (thrown) {
      throw new Error(`step ${place}, ${step["do"]}: ${(thrown as Error).message}`, { cause: thrown });
    }
  }
  await session.wait();
  const closed = session.close();
  if (!proxy) return closed;
  await closed.catch(() => {}); // the proxy may cut the last call; the session's lease runs out
  const cuts = await proxy.end();
  assert.ok(cuts >= 2, `${cuts} cuts, ${session.reconnects} reconnects`);
}

/** Runs steps in a session, or records them in that of a program. */
class Runner {
  readonly tensors = new Map<string, Tensor>();
  private readonly programs = new Map<string, Program>();
  private readonly hooks = new Map<string, Hook>();
  private called: string[] = [];
  private round = 0;

  constructor(private readonly session: Session) {}

  /** Run a step, and compare its refusal with the expected one. */
  async checked(step: Step): Promise<void> {
    const expected: string | undefined = step["refused"];
    if (!expected) return this.step(step);
    let thrown: unknown;
    try {
      await this.step(step);
      await this.session.wait();
    } catch (error) {
      thrown = error;
    }
    if (expected === "HOOK") {
      assert.ok(thrown instanceof HookError, `not the hook's own error: ${thrown}`);
    } else if (expected === "DEPENDENCY_FAILED") {
      assert.ok(step["do"] !== "read" || thrown, "a failed tensor was read"); // its cause was reported before
    } else {
      assert.ok(thrown instanceof GradwireError, `${thrown} instead of ${expected}`);
      assert.equal(Reason[thrown.reason], expected, thrown.message);
      assert.ok(thrown.message);
    }
  }

  private async step(step: Step): Promise<void> {
    switch (step["do"]) {
      case "tensor":
        return this.leaf(step);
      case "op":
        return this.op(step);
      case "backward":
        return backward(this.several(step["tensors"]), {
          gradients: this.several(step["gradients"]),
          inputs: this.several(step["inputs"]),
          retainGraph: step["retain_graph"] ?? false,
          createGraph: step["create_graph"] ?? false,
        });
      case "gradients":
        return this.gradients(step);
      case "grad":
        this.tensors.set(step["out"], this.of(step).grad);
        return;
      case "no_grad_of":
        assert.equal(await this.of(step).hasGrad(), false);
        return;
      case "set_grad":
        this.of(step).grad = step["to"] === null ? null : this.tensor(step["to"]);
        return;
      case "set_data":
        this.of(step).setData(this.tensor(step["to"]));
        return;
      case "requires_grad":
        this.of(step).requiresGrad_(step["to"]);
        return;
      case "retain_grad":
        this.of(step).retainGrad();
        return;
      case "forget":
        this.of(step).release();
        return;
      case "hook":
        return this.hook(step);
      case "node_hook":
        return this.nodeHook(step);
      case "square":
        this.tensors.set(step["out"], new Square(step["factor"]).apply(this.of(step)));
        return;
      case "remove_hook":
        this.hooks.get(step["hook"])?.remove();
        return;
      case "hooks_run":
        assert.deepEqual(this.called, step["expect"]);
        this.called = [];
        return;
      case "read":
        return this.read(step);
      case "describe":
        return this.describe(step);
      case "program":
        return this.program(step);
      case "run": {
        const { numbers, repeat, sliced, stacked } = step;
        const program = this.programs.get(step["program"]) as Program;
        const made = program.run(this.several(step["inputs"]), { numbers, repeat, sliced, stacked });
        made.forEach((tensor, place) => {
          this.tensors.set(step["out"][place], tensor);
        });
        return;
      }
      case "repeat":
        for (let round = 0; round < step["times"]; round++) {
          this.round = round;
          for (const each of step["steps"]) await this.step(each);
        }
        return;
      case "seed":
        this.session.manualSeed(step["seed"]);
        return;
      case "wait":
        return this.session.wait();
      case "sleep":
        await new Promise((resolve) => setTimeout(resolve, 1000 * step["seconds"]));
        return;
      default:
        throw new Error(`unknown step ${step["do"]}`);
    }
  }

  private tensor(name: string): Tensor {
    return this.tensors.get(name) as Tensor;
  }

  private of(step: Step): Tensor {
    return this.tensor(step["of"]);
  }

  private several(names: string[] | undefined): Tensor[] {
    return (names ?? []).map((name) => this.tensor(name));
  }

  private leaf(step: Step): void {
    const dtype = dtypeOf(step["dtype"]);
    const shape: number[] = step["shape"];
    let made: Tensor;
    if (step["ramp"] !== undefined) {
      const count = shape.reduce((product, size) => product * size, 1);
      made = this.session.tensor(
        Float32Array.from({ length: count }, (_, i) => i % step["ramp"]),
        { dtype, shape },
      );
    } else if (step["hex"] !== undefined) {
      made = this.session.fromBytes(dtype, Buffer.from(step["hex"], "hex"), shape);
    } else {
      made = this.session.tensor(floats(step["values"]), { dtype, shape });
    }
    if (step["requires_grad"]) made.requiresGrad_();
    this.tensors.set(step["out"], made);
  }

  private async op(step: Step): Promise<void> {
    const { session } = this;
    const make = (): Call => {
      const call = new Call(step["op"], session);
      for (const each of step["args"] ?? []) this.argument(call, "", each);
      for (const [name, each] of Object.entries(step["named"] ?? {})) this.argument(call, name, each as Step);
      return call;
    };
    const out: string | string[] | undefined = step["out"];
    if (step["op"] === "split") {
      // ListOps says that only the answer tells how many there are.
      const made = await make().list();
      (out as string[]).forEach((name, place) => {
        this.tensors.set(name, made[place] as Tensor);
      });
      return;
    }
    const apply = (): void => {
      if (out === undefined || out === null) make().inPlace();
      else if (typeof out === "string") this.tensors.set(out, make().one());
      else {
        make()
          .several(out.length)
          .forEach((tensor, place) => {
            this.tensors.set(out[place] as string, tensor);
          });
      }
    };
    if (step["mode"] === "no_grad") session.noGrad(apply);
    else if (step["mode"] === "inference") session.inferenceMode(apply);
    else apply();
  }

  private argument(call: Call, name: string, given: Step): void {
    const [[kind, value]] = Object.entries(given) as [[string, Step[string]]];
    switch (kind) {
      case "tensor":
        call.tensor(name, this.tensor(value));
        break;
      case "tensors":
        call.tensors(name, this.several(value));
        break;
      case "dtype":
        call.dtype(name, dtypeOf(value));
        break;
      case "complex":
        call.complex(name, new Complex(value[0], value[1]));
        break;
      case "floats":
        call.floats(name, floats(value));
        break;
      case "round":
        call.float(name, value * this.round);
        break;
      case "number":
        call.number(name, new ProgramNumber(value));
        break;
      case "index":
        call.index(
          name,
          value.map((each: Step) => this.item(each)),
        );
        break;
      case "none":
        call.none(name);
        break;
      default:
        call[kind as "float" | "integer"](name, value);
    }
  }

  private item(given: Step): IndexItem {
    const [[kind, value]] = Object.entries(given) as [[string, Step[string]]];
    switch (kind) {
      case "slice":
        return new Slice(...value.map((each: number | null) => each ?? undefined));
      case "new_axis":
        return null;
      case "ellipsis":
        return "...";
      case "tensor":
        return this.tensor(value);
      default:
        return value;
    }
  }

  private async gradients(step: Step): Promise<void> {
    const options = {
      gradients: this.several(step["grad_outputs"]),
      retainGraph: step["retain_graph"] ?? false,
      createGraph: step["create_graph"] ?? false,
    };
    const [outputs, inputs] = [this.several(step["outputs"]), this.several(step["inputs"])];
    const made: (Tensor | null)[] = step["allow_unused"]
      ? await grad(outputs, inputs, { ...options, allowUnused: true })
      : await grad(outputs, inputs, options);
    step["out"].forEach((name: string | null, place: number) => {
      assert.equal(made[place] === null, name === null, `gradient ${place}`);
      if (name !== null) this.tensors.set(name, made[place] as Tensor);
    });
  }

  private hook(step: Step): void {
    const name: string = step["name"];
    const ran = (): void => {
      this.called.push(name);
      if (step["fails"]) throw new HookError(name);
    };
    const tensor = this.of(step);
    const hook =
      step["kind"] === "accumulated"
        ? tensor.registerPostAccumulateGradHook(ran)
        : tensor.registerHook((gradient) => {
            ran();
            return step["factor"] === undefined ? undefined : gradient.mul(step["factor"]);
          });
    this.hooks.set(name, hook);
  }

  private nodeHook(step: Step): void {
    const scaled = (gradients: readonly (Tensor | null)[]): (Tensor | null)[] => {
      this.called.push(step["name"]);
      return gradients.map((each) => each?.mul(step["factor"]) ?? null);
    };
    const node = this.of(step).gradFn;
    assert.ok(node);
    this.hooks.set(step["name"], step["kind"] === "before" ? node.registerPrehook(scaled) : node.registerHook(scaled));
  }

  private async program(step: Step): Promise<void> {
    const rows: Step[] = step["inputs"];
    const inputs = rows.map((row) => {
      return { dtype: dtypeOf(row["dtype"]), shape: row["shape"], requiresGrad: row["requires_grad"] ?? false };
    });
    const program = await this.session.trace({ inputs, numbers: step["numbers"] }, async (session, given) => {
      const inner = new Runner(session);
      rows.forEach((row, place) => {
        inner.tensors.set(row["name"], given[place] as Tensor);
      });
      for (const each of step["steps"]) await inner.step(each);
      return inner.several(step["outputs"]).map((tensor) => tensor.detach());
    });
    this.programs.set(step["name"], program);
  }

  private async read(step: Step): Promise<void> {
    const expected: Step = step["expect"];
    const payload = await this.of(step).read();
    assert.equal(nameOf(payload.dtype), expected["dtype"]);
    assert.deepEqual(payload.shape, expected["shape"]);
    if (expected["sha256"]) {
      assert.equal(createHash("sha256").update(payload.data).digest("hex"), expected["sha256"]);
    } else if (expected["hex"] !== undefined) {
      assert.equal(Buffer.from(payload.data).toString("hex"), expected["hex"]);
    } else {
      compare(await this.of(step).data(), floats(expected["values"]), expected["dtype"]);
    }
  }

  private async describe(step: Step): Promise<void> {
    const told = await this.of(step).describe();
    const found: Step = {
      dtype: nameOf(told.dtype),
      shape: told.shape,
      requires_grad: told.requiresGrad,
      is_leaf: told.isLeaf,
      grad_fn: told.gradFn,
      retains_grad: told.retainsGrad,
      is_view: told.isView,
      version: told.version,
    };
    for (const [key, wanted] of Object.entries(step["expect"])) assert.deepEqual(found[key], wanted, key);
  }
}

const TOLERANCE: Record<string, number> = { float32: 1e-5, float64: 1e-10 };

function compare(found: ArrayLike<number | bigint>, expected: number[], dtype: string): void {
  assert.equal(found.length, expected.length);
  expected.forEach((wanted, place) => {
    const value = Number(found[place]);
    const near = Math.abs(value - wanted) <= (TOLERANCE[dtype] ?? 0) * Math.max(1, Math.abs(wanted));
    assert.ok(Object.is(value, wanted) || value === wanted || near, `[${place}] is ${value} instead of ${wanted}`);
  });
}

function floats(values: (number | boolean | string)[]): number[] {
  const words: Record<string, number> = {
    nan: Number.NaN,
    inf: Number.POSITIVE_INFINITY,
    "-inf": Number.NEGATIVE_INFINITY,
  };
  return values.map((value) => (typeof value === "string" ? (words[value] ?? Number.NaN) : Number(value)));
}

function dtypeOf(name: string): DType {
  return DType[name.toUpperCase() as keyof typeof DType];
}
