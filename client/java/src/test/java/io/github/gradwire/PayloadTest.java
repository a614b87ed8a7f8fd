package io.github.gradwire;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;

import com.google.protobuf.ByteString;
import io.github.gradwire.v1.Dtype;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.stream.LongStream;
import org.junit.jupiter.api.Test;

/** Conversions of values to Java's types. */
class PayloadTest {
  @Test
  void unsignedNumbersAreRoundedOnce() {
    long[] values = {0, 1, Long.MAX_VALUE, -1, -1024, 0xc000000000000401L, 0xc000000000000201L};
    ByteBuffer bytes = ByteBuffer.allocate(8 * values.length).order(ByteOrder.LITTLE_ENDIAN);
    LongStream.of(values).forEach(bytes::putLong);
    io.github.gradwire.v1.Payload payload =
        io.github.gradwire.v1.Payload.newBuilder()
            .setDtype(Dtype.DTYPE_UINT64)
            .addShape(values.length)
            .setData(ByteString.copyFrom(bytes.array()))
            .build();
    double[] expected =
        LongStream.of(values)
            .mapToDouble(each -> new BigInteger(Long.toUnsignedString(each)).doubleValue())
            .toArray();
    assertArrayEquals(expected, Payload.of(payload).doubles());
  }
}
