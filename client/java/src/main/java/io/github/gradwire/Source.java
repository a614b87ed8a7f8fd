package io.github.gradwire;

import com.google.protobuf.ByteString;
import com.google.protobuf.UnsafeByteOperations;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/**
 * The values of a new tensor. They become bytes part by part, while these are sent. So a large
 * tensor needs no copy of all its bytes.
 */
final class Source {
  /** Writes elements, little-endian, to a buffer that has room for exactly these. */
  private interface Elements {
    void put(ByteBuffer into, int first, int count);
  }

  private final int width; // bytes of an element
  private final int count;
  private final Elements elements; // null if the bytes are there
  private final byte[] bytes;

  private Source(int width, int count, Elements elements, byte[] bytes) {
    this.width = width;
    this.count = count;
    this.elements = elements;
    this.bytes = bytes;
  }

  static Source of(byte[] values) {
    return new Source(1, values.length, null, values);
  }

  static Source of(float[] values) {
    Elements put = (into, first, count) -> into.asFloatBuffer().put(values, first, count);
    return new Source(Float.BYTES, values.length, put, null);
  }

  static Source of(double[] values) {
    Elements put = (into, first, count) -> into.asDoubleBuffer().put(values, first, count);
    return new Source(Double.BYTES, values.length, put, null);
  }

  static Source of(long[] values) {
    Elements put = (into, first, count) -> into.asLongBuffer().put(values, first, count);
    return new Source(Long.BYTES, values.length, put, null);
  }

  static Source of(int[] values) {
    Elements put = (into, first, count) -> into.asIntBuffer().put(values, first, count);
    return new Source(Integer.BYTES, values.length, put, null);
  }

  /** How many bytes there are. */
  long size() {
    return (long) width * count;
  }

  /** All bytes of a source that has less than 2 GiB. */
  ByteString all() {
    return part(0, Math.toIntExact(size()));
  }

  /** The bytes from a place on. The caller's array of bytes is not copied. */
  ByteString part(long at, int size) {
    if (elements == null) {
      return UnsafeByteOperations.unsafeWrap(bytes, (int) at, size);
    }
    // A part may begin and end within elements.
    int first = (int) (at / width);
    int skipped = (int) (at % width);
    int whole = (skipped + size + width - 1) / width;
    ByteBuffer made = ByteBuffer.allocate(whole * width).order(ByteOrder.LITTLE_ENDIAN);
    elements.put(made, first, whole);
    return UnsafeByteOperations.unsafeWrap(made.array(), skipped, size);
  }
}
