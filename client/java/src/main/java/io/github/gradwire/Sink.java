package io.github.gradwire;

import io.github.gradwire.v1.Command;
import io.github.gradwire.v1.Error;
import io.github.gradwire.v1.GradMode;
import io.github.gradwire.v1.Result;

/** Takes a session's commands: the writer of a live session, or the recorder of a program. */
interface Sink {
  /** Takes a command that is answered only if it fails. */
  void send(Command.Builder command);

  /** Takes a call of an op, with the tensors that it makes. */
  void op(Call call, GradMode mode, Tensor[] made);

  /** Sends a command and waits for its result, which may be a refusal. */
  Result ask(Command command);

  /** Waits until all commands are answered. */
  void await();

  /** The first refusal of a quiet command since the last time; null if there is none. */
  Error takeFailure();

  /** The refusal from which another one follows, or that one. */
  Error origin(Error failure);

  /** Queues an id for release. Takes no lock, since the cleaner's thread calls it. */
  void release(Handle handle);
}
