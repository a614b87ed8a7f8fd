package io.github.gradwire;

import io.github.gradwire.v1.GradMode;

/** A gradient mode of this thread, until it is closed: see {@link Session#noGrad}. */
public final class GradModeScope implements AutoCloseable {
  private final Session.OfThread thread;
  private final GradMode before;

  GradModeScope(Session.OfThread thread, GradMode mode) {
    this.thread = thread;
    this.before = thread.mode;
    thread.mode = mode;
  }

  /** Restores the mode before. */
  @Override
  public void close() {
    thread.mode = before;
  }
}
