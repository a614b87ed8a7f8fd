package io.github.gradwire;

import java.util.ArrayList;
import java.util.List;

/**
 * Releases the tensors that its thread made in it, but for those with {@link Tensor#keep}:
 *
 * <pre>{@code
 * try (TensorScope scope = session.scope()) {
 *   …
 * }
 * }</pre>
 *
 * <p>Use one around each step of a loop. The garbage collector does not know the server's memory.
 */
public final class TensorScope implements AutoCloseable {
  private final Session.OfThread thread;
  private final TensorScope outer;
  private final List<Tensor> made = new ArrayList<>();

  TensorScope(Session.OfThread thread) {
    this.thread = thread;
    this.outer = thread.scope;
  }

  void add(Tensor tensor) {
    made.add(tensor);
  }

  /** Releases the tensors. Close it in the thread that opened it, inner scopes first. */
  @Override
  public void close() {
    thread.scope = outer;
    for (Tensor each : made) {
      if (!each.isKept()) {
        each.close();
      }
    }
    made.clear();
  }
}
