package io.github.gradwire;

import com.google.protobuf.ByteString;
import io.github.gradwire.v1.Dtype;
import io.github.gradwire.v1.Reason;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.List;

/** A tensor's values: element type, shape, and bytes that are little-endian and row-major. */
public final class Payload {
  private final DType dtype;
  private final long[] shape;
  private final ByteString data;

  private Payload(Dtype dtype, List<Long> shape, ByteString data) {
    this.dtype = DType.of(dtype);
    this.shape = shape.stream().mapToLong(Long::longValue).toArray();
    this.data = data;
  }

  static Payload of(io.github.gradwire.v1.Payload payload) {
    return new Payload(payload.getDtype(), payload.getShapeList(), payload.getData());
  }

  static Payload of(io.github.gradwire.v1.Transfer transfer, ByteString data) {
    return new Payload(transfer.getDtype(), transfer.getShapeList(), data);
  }

  /** The element type. */
  public DType dtype() {
    return dtype;
  }

  /** The sizes of the dimensions. */
  public long[] shape() {
    return shape.clone();
  }

  /** The bytes, read-only and little-endian. */
  public ByteBuffer buffer() {
    return data.asReadOnlyByteBuffer().order(ByteOrder.LITTLE_ENDIAN);
  }

  /** A copy of the bytes. */
  public byte[] bytes() {
    return data.toByteArray();
  }

  private int length() {
    return data.size() / dtype.size();
  }

  /** The values as floats; those of other real types are converted. */
  public float[] floats() {
    float[] made = new float[length()];
    if (dtype == DType.FLOAT32) {
      buffer().asFloatBuffer().get(made);
      return made;
    }
    double[] values = doubles();
    for (int i = 0; i < made.length; i++) {
      made[i] = (float) values[i];
    }
    return made;
  }

  /** The values as doubles; those of other real types are converted. */
  public double[] doubles() {
    ByteBuffer bytes = buffer();
    double[] made = new double[length()];
    for (int i = 0; i < made.length; i++) {
      made[i] =
          switch (dtype) {
            case FLOAT64 -> bytes.getDouble();
            case FLOAT32 -> bytes.getFloat();
            case FLOAT16 -> half(bytes.getShort());
            case BFLOAT16 -> Float.intBitsToFloat(bytes.getShort() << 16);
            case UINT64 -> unsigned(bytes.getLong());
            default -> integer(bytes);
          };
    }
    return made;
  }

  /** The values of a type of integers or bools. UINT64 wraps above {@link Long#MAX_VALUE}. */
  public long[] longs() {
    ByteBuffer bytes = buffer();
    long[] made = new long[length()];
    for (int i = 0; i < made.length; i++) {
      made[i] = integer(bytes);
    }
    return made;
  }

  private long integer(ByteBuffer bytes) {
    return switch (dtype) {
      case INT8 -> bytes.get();
      case UINT8, BOOL -> Byte.toUnsignedLong(bytes.get());
      case INT16 -> bytes.getShort();
      case UINT16 -> Short.toUnsignedLong(bytes.getShort());
      case INT32 -> bytes.getInt();
      case UINT32 -> Integer.toUnsignedLong(bytes.getInt());
      case INT64, UINT64 -> bytes.getLong();
      default ->
          throw GradwireException.mistake(
              Reason.REASON_DTYPE, "", "values of %s are not converted to this type", dtype);
    };
  }

  private static double unsigned(long value) {
    // Half of it, whose last bit tells that one was cut off, so that only the cast rounds.
    return value < 0 ? 2.0 * ((value >>> 1) | (value & 1)) : value;
  }

  /** Converts an IEEE 754 binary16. */
  private static double half(short bits) {
    double sign = bits < 0 ? -1 : 1;
    int exponent = (bits >> 10) & 31;
    int fraction = bits & 1023;
    return switch (exponent) {
      case 31 -> fraction != 0 ? Double.NaN : sign * Double.POSITIVE_INFINITY;
      case 0 -> sign * Math.scalb(fraction, -24);
      default -> sign * Math.scalb(1024.0 + fraction, exponent - 25);
    };
  }
}
