/** Commands as the bytes of a batch. Bytes are written once: a batch that is sent again is the same. */

import { create, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { BinaryWriter } from "@bufbuild/protobuf/wire";
import type { WordSink } from "./call.js";
import { type Command, CommandSchema, type Result } from "./gen/gradwire/v1/service_pb.js";

/** What a command does. */
export type CommandInit = NonNullable<MessageInitShape<typeof CommandSchema>["command"]>;

/** Who waits for a result. */
export interface Waiting {
  resolve(result: Result): void;
  reject(error: Error): void;
}

// Tags: the field's number and the kind of its value (2 is bytes, 0 is a number).
const LENGTH = 2;
const TAG = {
  batch: (2 << 3) | LENGTH, // of StreamRequest
  firstSeq: 3 << 3, // of RunRequest
  acknowledgedSeq: 5 << 3,
  command: (6 << 3) | LENGTH,
  calls: (15 << 3) | LENGTH, // of Command
  count: 1 << 3, // of Calls
  words: (15 << 3) | LENGTH,
};

/** The bytes of a command. */
export function encoded(command: CommandInit, quiet: boolean): Uint8Array {
  return toBinary(CommandSchema, create(CommandSchema, { command, quiet }) satisfies Command);
}

/** Words of prepared calls: eight bytes each, an id or a float. */
export class Words implements WordSink {
  private bytes = new Uint8Array(4096);
  private view = new DataView(this.bytes.buffer);
  length = 0;

  private room(): number {
    if (this.length + 8 > this.bytes.length) {
      const larger = new Uint8Array(2 * this.bytes.length);
      larger.set(this.bytes);
      this.bytes = larger;
      this.view = new DataView(larger.buffer);
    }
    this.length += 8;
    return this.length - 8;
  }

  id(value: number): void {
    const at = this.room();
    this.view.setUint32(at, value >>> 0, true);
    this.view.setUint32(at + 4, Math.floor(value / 2 ** 32), true);
  }

  float(value: number): void {
    const at = this.room();
    this.view.setFloat64(at, value, true);
  }

  /** The words so far, which are taken out. */
  take(): Uint8Array {
    const taken = this.bytes.slice(0, this.length);
    this.length = 0;
    return taken;
  }
}

/** The bytes of a command that calls prepared ops. */
export function encodedCalls(count: number, words: Uint8Array): Uint8Array {
  const calls = new BinaryWriter().uint32(TAG.count).uint32(count).uint32(TAG.words).bytes(words).finish();
  return new BinaryWriter().uint32(TAG.calls).bytes(calls).finish();
}

/** A message of commands, kept until its answer comes. */
export class Batch {
  /** Called when the batch is answered or given up. */
  readonly done: (() => void)[] = [];
  private message: Uint8Array | undefined;
  /** Bytes that the batch takes of the credit. */
  size = 0;

  constructor(
    private readonly first: number,
    readonly last: number,
    /** The commands; undefined while they are not known. */
    public commands: Uint8Array[] | undefined,
    readonly waiting: Map<number, Waiting>,
  ) {}

  /** The StreamRequest. The first call decides what it acknowledges. */
  stamped(acknowledged: number): Uint8Array {
    if (!this.message) {
      const body = new BinaryWriter().uint32(TAG.firstSeq).uint64(this.first);
      body.uint32(TAG.acknowledgedSeq).uint64(acknowledged);
      for (const command of this.commands ?? []) body.uint32(TAG.command).bytes(command);
      const bytes = body.finish();
      this.size = bytes.length;
      this.message = new BinaryWriter().uint32(TAG.batch).bytes(bytes).finish();
      this.commands = []; // the message has them
    }
    return this.message;
  }

  /** End the waits that got no result: nothing more comes. */
  end(error?: Error): void {
    for (const each of this.waiting.values()) each.reject(error ?? new Error("gradwire: the server sent no result"));
    this.waiting.clear();
    for (const each of this.done.splice(0)) each();
  }
}
