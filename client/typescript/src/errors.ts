/** Refusals as errors: one class for each kind of Python exception, with the reason for programs. */

import { fromBinary } from "@bufbuild/protobuf";
import { type Error as ErrorMessage, ErrorSchema, Reason } from "./gen/gradwire/v1/errors_pb.js";

export { Reason };

/** The gRPC status codes that this package uses by name. */
export const Code = { CANCELLED: 1, UNKNOWN: 2, INVALID_ARGUMENT: 3, UNIMPLEMENTED: 12, UNAVAILABLE: 14 } as const;

/** What an error tells besides its message. */
export interface Details {
  readonly reason: Reason;
  readonly code: number;
  readonly metadata: Readonly<Record<string, string>>;
  readonly rootSeq: number;
}

/**
 * A refusal by the server, or a mistake that this package found before it sent anything.
 *
 * `message` is PyTorch's sentence where PyTorch has one. The subclass tells the kind, `reason` the exact reason.
 */
export class GradwireError extends Error implements Details {
  /** What is wrong, for programs; `Reason.UNSPECIFIED` for a failed connection. */
  readonly reason: Reason;
  /** The gRPC status code that belongs to the reason. */
  readonly code: number;
  /** All details. The keys depend on the reason. */
  readonly metadata: Readonly<Record<string, string>>;
  /** The command that failed first, if this one only depends on it; otherwise 0. */
  readonly rootSeq: number;

  constructor(message: string, details: Partial<Details> = {}) {
    super(message);
    this.name = new.target.name;
    this.reason = details.reason ?? Reason.UNSPECIFIED;
    this.code = details.code ?? Code.UNKNOWN;
    this.metadata = details.metadata ?? {};
    this.rootSeq = details.rootSeq ?? 0;
  }

  /** The refused op; empty if there is none. */
  get op(): string {
    return this.metadata["op"] ?? "";
  }

  /** The parameter or field at fault; empty if it is not one alone. */
  get argument(): string {
    return this.metadata["argument"] ?? "";
  }

  /** The shape of the op's first tensor, if told. */
  get shape(): number[] | undefined {
    const text = this.metadata["shape"];
    return text && /^\[[\d, ]*\]$/.test(text) ? (JSON.parse(text) as number[]) : undefined;
  }

  /** Whether the same call may succeed later. */
  get mayRetry(): boolean {
    switch (this.reason) {
      case Reason.UNAVAILABLE:
      case Reason.STREAM_TAKEN:
      case Reason.SESSION_MOVED:
        return true;
      case Reason.UNSPECIFIED:
        return this.code !== Code.UNIMPLEMENTED && this.code !== Code.INVALID_ARGUMENT;
      default:
        return false;
    }
  }

  /** Whether no server answered. */
  get isConnectionFailure(): boolean {
    return this.reason === Reason.UNSPECIFIED && this.mayRetry;
  }
}

/** Wrong number, name or kind of arguments: Python's TypeError. */
export class GradwireTypeError extends GradwireError {}
/** A value that is not allowed: Python's ValueError. */
export class GradwireValueError extends GradwireError {}
/** An index or dimension that a tensor does not have: Python's IndexError. */
export class GradwireIndexError extends GradwireError {}
/** An op or a case that the server does not have: Python's NotImplementedError. */
export class GradwireNotImplementedError extends GradwireError {}
/** A limit of bytes: Python's MemoryError. */
export class GradwireMemoryError extends GradwireError {}
/** A deadline that passed: Python's TimeoutError. */
export class GradwireTimeoutError extends GradwireError {}
/** No authentication or no right: Python's PermissionError. */
export class GradwirePermissionError extends GradwireError {}
/** No server, or none that answers now: Python's ConnectionError. */
export class GradwireConnectionError extends GradwireError {}
/** The server cannot write: Python's OSError. */
export class GradwireStorageError extends GradwireError {}
/** Everything else: Python's RuntimeError. */
export class GradwireRuntimeError extends GradwireError {}

const CLASSES: Partial<Record<Reason, typeof GradwireError>> = {
  [Reason.OP_UNKNOWN]: GradwireNotImplementedError,
  [Reason.NOT_SUPPORTED]: GradwireNotImplementedError,
  [Reason.ARGUMENT_TYPE]: GradwireTypeError,
  [Reason.ARGUMENT_VALUE]: GradwireValueError,
  [Reason.PAYLOAD_SIZE]: GradwireValueError,
  [Reason.MESSAGE_TOO_LARGE]: GradwireValueError,
  [Reason.MALFORMED]: GradwireValueError,
  [Reason.DIM_OUT_OF_RANGE]: GradwireIndexError,
  [Reason.INDEX_OUT_OF_RANGE]: GradwireIndexError,
  [Reason.MEMORY_LIMIT]: GradwireMemoryError,
  [Reason.DEADLINE_EXCEEDED]: GradwireTimeoutError,
  [Reason.UNAUTHENTICATED]: GradwirePermissionError,
  [Reason.PERMISSION_DENIED]: GradwirePermissionError,
  [Reason.UNAVAILABLE]: GradwireConnectionError,
  [Reason.STORAGE]: GradwireStorageError,
};

function made(message: string, details: Details): GradwireError {
  return new (CLASSES[details.reason] ?? GradwireRuntimeError)(message, details);
}

/** @internal A mistake found before anything was sent. */
export function refusal(reason: Reason, message: string, op = ""): GradwireError {
  return made(message, { reason, code: Code.INVALID_ARGUMENT, metadata: op ? { op } : {}, rootSeq: 0 });
}

/** @internal A refusal by its parts. */
export function refused(
  reason: Reason,
  code: number,
  message: string,
  metadata: Readonly<Record<string, string>>,
): GradwireError {
  return made(message, { reason, code, metadata, rootSeq: 0 });
}

/** @internal The error of a gradwire.v1.Error. */
export function fromMessage(told: ErrorMessage): GradwireError {
  const { reason, code, metadata } = told;
  return made(told.message, { reason, code, metadata, rootSeq: Number(told.rootSeq) });
}

/** @internal The error of a call: the refusal in the trailer gradwire-error-bin, or a failed connection without one. */
export function fromStatus(code: number, message: string, trailer?: Uint8Array): GradwireError {
  if (trailer) return fromMessage(fromBinary(ErrorSchema, trailer));
  return new GradwireConnectionError(message, { code });
}

/** @internal An error with advice after its message. */
export function withAdvice(error: GradwireError, message: string, advice: string): GradwireError {
  return new (error.constructor as typeof GradwireError)(advice ? `${message}\n  ${advice}` : message, error);
}

/** @internal A call's error with advice about the token, if that is what is wrong. */
export function aboutToken(error: GradwireError, hasToken: boolean): GradwireError {
  if (error.reason !== Reason.UNAUTHENTICATED) return error;
  const unknown = "The token of `token` is unknown to this server, or has expired.";
  const none = "No token was given: pass `token`. `gradwire token NAME` makes one.";
  return withAdvice(error, error.message, hasToken ? unknown : none);
}

/** @internal What a call threw, if it is of this package. A defect is thrown on: it must not be tried again. */
export function asError(thrown: unknown): GradwireError {
  if (thrown instanceof GradwireError) return thrown;
  throw thrown;
}
