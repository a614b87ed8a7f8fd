/** Tensors: names of values on the server. Ops are methods, which `ops.ts` has. */

import { type BackwardOptions, backward, type Hook, Node, registerAccumulatedHook, registerHook } from "./autograd.js";
import type { CommandInit } from "./batch.js";
import { Call, type IndexItem, type Operand } from "./call.js";
import { type GradwireError, Reason, refusal } from "./errors.js";
import type { Result } from "./gen/gradwire/v1/service_pb.js";
import { TensorMethods } from "./ops.js";
import type { Session } from "./session.js";
import { DType, type Nested, nameOf, nested, type Payload, type TypedArray, typedArray } from "./values.js";

/** What the server tells of a tensor without its values. */
export interface Description {
  readonly dtype: DType;
  readonly shape: number[];
  readonly device: string;
  readonly requiresGrad: boolean;
  readonly isLeaf: boolean;
  /** Name of the node that made it, as in PyTorch; empty for a leaf. */
  readonly gradFn: string;
  readonly retainsGrad: boolean;
  readonly isView: boolean;
  /** Number of in-place changes of its bytes. */
  readonly version: number;
}

/**
 * A tensor of a session. Its values are on the server, and may not be computed yet. A tensor that could not be made has an
 * error, which every read of it throws; every tensor made from it has the error, too.
 */
export class Tensor extends TensorMethods {
  /** @internal */
  released = false;
  /** @internal */
  kept = false;

  /** @internal */
  constructor(
    /** The tensor's session. */
    readonly session: Session,
    /** The tensor's name in its session. */
    readonly id: number,
    /** Why the tensor could not be made, as far as it is known without waiting. */
    readonly error?: GradwireError,
  ) {
    super();
  }

  // Life

  /** Let the tensor live on after the `tidy` in which it was made. Returns the tensor. */
  keep(): this {
    this.kept = true;
    return this;
  }

  /** Free the tensor on the server, unless a graph or another tensor needs its values. Use it no more. */
  release(): void {
    this.session.release(this);
  }

  /** `using t = …` releases the tensor at the end of the block. */
  [Symbol.dispose](): void {
    this.release();
  }

  // Commands

  private send(command: CommandInit): this {
    if (this.error) this.session.sink.failed(this.error);
    else this.session.sink.send(command);
    return this;
  }

  private ask(command: CommandInit): Promise<Result["result"]> {
    if (!this.error) return this.session.ask(command);
    this.session.sink.reported(this.error);
    return Promise.reject(this.error);
  }

  /** Why another tensor cannot be used with this one: an id means another tensor in another session. */
  private mistakeOf(name: string, other: Tensor): GradwireError | undefined {
    if (other.session === this.session) return other.error;
    return other.error ?? refusal(Reason.ARGUMENT_VALUE, `${name}: the tensor belongs to another session`);
  }

  // Reading

  /** Fetch the values as bytes. Throws the first refusal since the last wait or read. */
  async read(): Promise<Payload> {
    const result = await this.ask({ case: "read", value: { tensor: BigInt(this.id) } });
    const told = result.case === "read" ? result.value.result : undefined;
    if (told?.case === "transfer") {
      const data = await this.session.download(told.value.transferId, Number(told.value.totalBytes));
      return { dtype: told.value.dtype, shape: told.value.shape.map(Number), data };
    }
    if (told?.case !== "payload") throw refusal(Reason.MALFORMED, "the answer to a read has no values");
    return { dtype: told.value.dtype, shape: told.value.shape.map(Number), data: told.value.data };
  }

  /**
   * Fetch the values as a flat typed array. float16 and bfloat16 become Float32Array, bool Uint8Array, and complex numbers
   * pairs of real and imaginary parts.
   */
  async data(): Promise<TypedArray> {
    return typedArray(await this.read());
  }

  /**
   * Fetch the values as nested arrays of numbers (Tensor.tolist). A complex number is an array of real and imaginary part.
   * Integers beyond 2^53 are rounded; `data` has all digits.
   */
  async array(): Promise<Nested> {
    return nested(await this.read());
  }

  /** Fetch the value of a tensor of one element, which is real (Tensor.item). Integers beyond 2^53 are rounded. */
  async item(): Promise<number> {
    const payload = await this.read();
    if (payload.dtype === DType.COMPLEX64 || payload.dtype === DType.COMPLEX128) {
      throw refusal(Reason.DTYPE, `values of ${nameOf(payload.dtype)} cannot be converted to real numbers`);
    }
    const values = typedArray(payload);
    if (values.length !== 1) {
      const sentence = `a Tensor with ${values.length} elements cannot be converted to Scalar`;
      throw refusal(Reason.RUNTIME, sentence);
    }
    return Number(values[0]);
  }

  /** Ask for shape, dtype and flags. */
  async describe(): Promise<Description> {
    const result = await this.ask({ case: "describe", value: { tensors: [BigInt(this.id)] } });
    const spec = result.case === "describe" ? result.value.tensors[0] : undefined;
    if (!spec) throw refusal(Reason.MALFORMED, "the answer to a describe has no tensor");
    const { dtype, device, requiresGrad, isLeaf, gradFn, retainsGrad, isView } = spec;
    const shape = spec.shape.map(Number);
    return { dtype, shape, device, requiresGrad, isLeaf, gradFn, retainsGrad, isView, version: Number(spec.version) };
  }

  /** Ask for the sizes of the dimensions. */
  async shape(): Promise<number[]> {
    return (await this.describe()).shape;
  }

  // Gradients

  /** Set a leaf's flag (Tensor.requires_grad_). Returns the tensor. */
  requiresGrad_(requiresGrad = true): this {
    return this.send({ case: "setRequiresGrad", value: { tensor: BigInt(this.id), requiresGrad } });
  }

  /** Make a non-leaf keep its gradient in the next backward (Tensor.retain_grad). Returns the tensor. */
  retainGrad(): this {
    return this.send({ case: "retainGrad", value: { tensor: BigInt(this.id) } });
  }

  /**
   * Add gradients to the leaves that the tensor depends on (Tensor.backward). The command is queued at once. The promise
   * waits for hooks, and else only until the connection has room for more.
   */
  backward(options: BackwardOptions = {}): Promise<void> {
    return backward([this], options);
  }

  /** The gradient, as a tensor. Reading it fails where there is none: see `hasGrad`. Assign null to clear it. */
  get grad(): Tensor {
    if (this.error) return this.session.failedTensor(this.error);
    const made = this.session.newTensor();
    this.send({ case: "grad", value: { tensor: BigInt(this.id), id: BigInt(made.id) } });
    return made;
  }

  set grad(grad: Tensor | null) {
    const mistake = grad && this.mistakeOf("grad", grad);
    if (mistake) this.session.sink.failed(mistake);
    else this.send({ case: "setGrad", value: { tensor: BigInt(this.id), grad: BigInt(grad?.id ?? 0) } });
  }

  /** Ask whether the tensor has a gradient. */
  async hasGrad(): Promise<boolean> {
    if (this.error) throw this.error;
    const made = this.session.newTensor();
    try {
      const result = await this.ask({ case: "grad", value: { tensor: BigInt(this.id), id: BigInt(made.id) } });
      return result.case === "grad" && result.value.grad !== undefined;
    } finally {
      made.release();
    }
  }

  /** Make the tensor share another's values; no graph records it (t.data = data). */
  setData(data: Tensor): this {
    const mistake = this.mistakeOf("data", data);
    if (mistake) {
      this.session.sink.failed(mistake);
      return this;
    }
    return this.send({ case: "setData", value: { tensor: BigInt(this.id), data: BigInt(data.id) } });
  }

  /**
   * Call f with the tensor's gradient in every backward that computes it (Tensor.register_hook). f returns another gradient,
   * or nothing to leave it, or a promise of these. What f throws ends the backward, which throws it.
   */
  registerHook(f: (gradient: Tensor) => Tensor | void | Promise<Tensor | void>): Hook {
    return registerHook(this, f);
  }

  /** Call f with the leaf after a backward has added to its gradient (Tensor.register_post_accumulate_grad_hook). */
  registerPostAccumulateGradHook(f: (leaf: Tensor) => void | Promise<void>): Hook {
    return registerAccumulatedHook(this, f);
  }

  /** The node of the graph that made the tensor, to register hooks of it (Tensor.grad_fn). A leaf has none. */
  get gradFn(): Node {
    return new Node(this);
  }

  // Indexing

  /** Take a part: `t.index(0, "1:3")` is `t[0, 1:3]`. */
  index(...items: IndexItem[]): Tensor {
    return new Call("getitem").tensor("", this).index("", items).one();
  }

  /** Assign to a part: `t.setIndex([0, "1:3"], value)` is `t[0, 1:3] = value`. Returns the tensor. */
  setIndex(items: readonly IndexItem[], value: Operand): Tensor {
    return new Call("setitem_").tensor("", this).index("", items).operand("", value).inPlace();
  }
}
