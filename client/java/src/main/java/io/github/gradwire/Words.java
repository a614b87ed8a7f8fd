package io.github.gradwire;

import com.google.protobuf.ByteString;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;
import java.util.Arrays;

/** Bytes that grow, little-endian; also a key of a map. */
final class Words {
  private static final VarHandle LONGS =
      MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.LITTLE_ENDIAN);

  private byte[] bytes;
  private int size;

  Words(int room) {
    bytes = new byte[room];
  }

  private void grow(int more) {
    if (size + more > bytes.length) {
      bytes = Arrays.copyOf(bytes, Math.max(2 * bytes.length, size + more));
    }
  }

  Words put(byte value) {
    grow(1);
    bytes[size++] = value;
    return this;
  }

  Words putLong(long value) {
    grow(8);
    LONGS.set(bytes, size, value);
    size += 8;
    return this;
  }

  /** Adds a text and an end mark. */
  Words text(String text) {
    int length = text.length();
    grow(2 * length + 2);
    for (int i = 0; i < length; i++) {
      char each = text.charAt(i);
      bytes[size++] = (byte) each;
      if (each > 0x7f) {
        bytes[size++] = (byte) (each >> 8);
      }
    }
    bytes[size++] = 0;
    return this;
  }

  int size() {
    return size;
  }

  void clear() {
    size = 0;
  }

  ByteString toByteString() {
    return ByteString.copyFrom(bytes, 0, size);
  }

  Words copy() {
    Words made = new Words(size);
    System.arraycopy(bytes, 0, made.bytes, 0, size);
    made.size = size;
    return made;
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof Words words
        && Arrays.equals(bytes, 0, size, words.bytes, 0, words.size);
  }

  @Override
  public int hashCode() {
    int hash = 1;
    for (int i = 0; i < size; i++) {
      hash = 31 * hash + bytes[i];
    }
    return hash;
  }
}
