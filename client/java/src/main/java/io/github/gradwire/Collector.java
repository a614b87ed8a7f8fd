package io.github.gradwire;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.function.Consumer;

/** Takes the parts of a download in order, and hands on whole elements. */
final class Collector {
  private final ByteBuffer rest; // of an element that two parts share
  private final Consumer<ByteBuffer> elements;

  /**
   * Makes a collector.
   *
   * @param width bytes of an element
   * @param elements takes little-endian bytes of whole elements
   */
  Collector(int width, Consumer<ByteBuffer> elements) {
    this.rest = ByteBuffer.allocate(width).order(ByteOrder.LITTLE_ENDIAN);
    this.elements = elements;
  }

  void take(ByteBuffer part) {
    fill(part, rest.position() > 0);
    int end = part.limit();
    part.limit(end - part.remaining() % rest.capacity());
    elements.accept(part.slice().order(ByteOrder.LITTLE_ENDIAN));
    part.position(part.limit()).limit(end);
    fill(part, true);
  }

  /** Moves bytes to the shared element, and hands it on when it is whole. */
  private void fill(ByteBuffer part, boolean begun) {
    while (begun && part.hasRemaining() && rest.hasRemaining()) {
      rest.put(part.get());
    }
    if (!rest.hasRemaining()) {
      elements.accept(rest.flip().slice().order(ByteOrder.LITTLE_ENDIAN));
      rest.clear();
    }
  }
}
