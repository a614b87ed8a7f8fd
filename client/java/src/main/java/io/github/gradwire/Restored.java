package io.github.gradwire;

import java.util.Map;

/**
 * A session from a snapshot.
 *
 * @param tensors the tensors that were saved under names
 */
public record Restored(Session session, Map<String, Tensor> tensors) implements AutoCloseable {
  /** Does {@link Session#close}. */
  @Override
  public void close() {
    session.close();
  }
}
