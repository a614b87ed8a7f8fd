package io.github.gradwire;

import io.github.gradwire.v1.Dtype;
import java.util.Locale;

/** An element type, by PyTorch's name. */
public enum DType {
  FLOAT32(Dtype.DTYPE_FLOAT32, 4),
  FLOAT64(Dtype.DTYPE_FLOAT64, 8),
  FLOAT16(Dtype.DTYPE_FLOAT16, 2),
  BFLOAT16(Dtype.DTYPE_BFLOAT16, 2),
  INT8(Dtype.DTYPE_INT8, 1),
  INT16(Dtype.DTYPE_INT16, 2),
  INT32(Dtype.DTYPE_INT32, 4),
  INT64(Dtype.DTYPE_INT64, 8),
  UINT8(Dtype.DTYPE_UINT8, 1),
  BOOL(Dtype.DTYPE_BOOL, 1),
  COMPLEX64(Dtype.DTYPE_COMPLEX64, 8),
  COMPLEX128(Dtype.DTYPE_COMPLEX128, 16),
  UINT16(Dtype.DTYPE_UINT16, 2),
  UINT32(Dtype.DTYPE_UINT32, 4),
  UINT64(Dtype.DTYPE_UINT64, 8);

  final Dtype proto;
  private final int size;

  DType(Dtype proto, int size) {
    this.proto = proto;
    this.size = size;
  }

  /** Bytes of an element. */
  public int size() {
    return size;
  }

  /** PyTorch's name: "float32". */
  @Override
  public String toString() {
    return name().toLowerCase(Locale.ROOT);
  }

  static DType of(Dtype proto) {
    for (DType each : values()) {
      if (each.proto == proto) {
        return each;
      }
    }
    throw new IllegalArgumentException("a newer server's dtype: " + proto);
  }
}
