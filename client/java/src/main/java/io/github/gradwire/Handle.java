package io.github.gradwire;

import java.util.concurrent.atomic.AtomicLong;

/**
 * Releases an id once its tensor is unreachable or closed. It must not refer to the tensor. It is
 * an entry of the writer's queue itself, so that a release allocates nothing.
 */
final class Handle implements Runnable {
  final long id;
  Handle next;
  private final Sink sink;
  private final AtomicLong live;

  Handle(Sink sink, AtomicLong live, long id) {
    this.sink = sink;
    this.live = live;
    this.id = id;
  }

  @Override
  public void run() {
    live.decrementAndGet();
    sink.release(this);
  }
}
