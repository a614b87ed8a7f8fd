/** Models that Python exported: weights, the optimizer's state, and programs such as a training step, in one file. */

import { Reason, refusal } from "./errors.js";
import type { LoadedProgram } from "./gen/gradwire/v1/programs_pb.js";
import { type RunOptions, runProgram } from "./program.js";
import type { Session } from "./session.js";
import type { Tensor } from "./tensor.js";
import { DType } from "./values.js";

/** A program of a file. Its tensors and counters are bound; a run gives the other inputs by name. */
export class FileProgram {
  /** The name in the file. */
  readonly name: string;
  /** The names that each run gives, with their places for `RunOptions.sliced`. */
  readonly inputs: ReadonlyMap<string, number>;
  /** The names of the results, in order; empty where the file has none. */
  readonly outputs: readonly string[];

  /** @internal */
  constructor(
    private readonly session: Session,
    private readonly loaded: LoadedProgram,
    private readonly loadAgain: () => void,
  ) {
    this.name = loaded.name;
    const given = loaded.signature.map((input, place) => [input.name, place] as const);
    this.inputs = new Map(given.filter(([, place]) => !loaded.inputs[place]));
    this.outputs = loaded.outputs.map((output) => output.name);
  }

  /** Run the program with the tensors of this call. It does not wait: a failure surfaces at the next wait or read. */
  run(named: Readonly<Record<string, Tensor>>, options: RunOptions = {}): Tensor[] {
    const names = Object.keys(named).sort();
    const inputs = names.map((name) => named[name] as Tensor);
    const { hash, inputs: bound, outputs } = this.loaded;
    if (!this.session.has(hash)) this.loadAgain();
    this.session.ran(hash);
    const given = names.map((name, place) => ({ name, id: BigInt(inputs[place]?.id ?? 0) }));
    return runProgram(this.session, { hash, inputs: bound, named: given }, inputs, outputs.length, options);
  }
}

/** A model with its programs, as Python's `gradwire.export` writes it. */
export class ProgramFile {
  /** @internal */
  constructor(
    private readonly session: Session,
    private readonly file: Tensor,
    /** The file's tensors by name, with their present values. */
    readonly tensors: ReadonlyMap<string, Tensor>,
    /** The file's programs by name. */
    readonly programs: ReadonlyMap<string, FileProgram>,
  ) {}

  /** A program of the file by its name, which a file with one program does not need. Throws if there is none. */
  program(name?: string): FileProgram {
    const names = [...this.programs.keys()];
    const found = this.programs.get(name ?? (names.length === 1 ? (names[0] as string) : ""));
    if (found) return found;
    throw refusal(
      Reason.ARGUMENT_VALUE,
      `the file has no program ${JSON.stringify(name ?? "")}; it has ${names.join(", ")}`,
    );
  }

  /** The bytes of a file with the present values. */
  async save(): Promise<Uint8Array> {
    const tensors = [...this.tensors].map(([name, tensor]) => ({ name, id: BigInt(tensor.id) }));
    const made = this.session.newTensor();
    const value = { file: BigInt(this.file.id), tensors, id: BigInt(made.id) };
    try {
      this.session.sink.send({ case: "saveProgram", value });
      return (await made.read()).data;
    } finally {
      made.release();
    }
  }

  /** Free the file's tensors on the server. Use the file no more. */
  release(): void {
    this.file.release();
    for (const tensor of this.tensors.values()) tensor.release();
  }

  /** `using model = …` releases the file at the end of the block. */
  [Symbol.dispose](): void {
    this.release();
  }
}

/** @internal Load a file, given its bytes. */
export async function loadProgram(session: Session, data: Uint8Array): Promise<ProgramFile> {
  const file = session.fromBytes(DType.UINT8, data, [data.length]);
  file.keep();
  try {
    const result = await session.ask({ case: "loadProgram", value: { file: BigInt(file.id) } });
    if (result.case !== "loadProgram") throw refusal(Reason.MALFORMED, "the answer to a load has no programs");
    const tensors = result.value.tensors.map(({ name, spec }) => {
      return [name, session.adopt(Number(spec?.id ?? 0)).keep()] as const;
    });
    const hashes = result.value.programs.map((each) => each.hash);
    session.loaded(hashes);
    const programs = result.value.programs.map((each) => {
      return [
        each.name,
        new FileProgram(session, each, () => loadAgain(session, file, tensors.length, hashes)),
      ] as const;
    });
    return new ProgramFile(session, file, new Map(tensors), new Map(programs));
  } catch (thrown) {
    file.release();
    throw thrown;
  }
}

/** Register programs that the server may have forgotten. The tensors that this makes are released. */
function loadAgain(session: Session, file: Tensor, count: number, hashes: readonly Uint8Array[]): void {
  const made = Array.from({ length: count }, () => session.newTensor());
  const ids = made.map((each) => BigInt(each.id));
  session.sink.send({ case: "loadProgram", value: { file: BigInt(file.id), ids } });
  for (const each of made) each.release();
  session.loaded(hashes);
}
