package io.github.gradwire;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertDoesNotThrow;
import static org.junit.jupiter.api.Assertions.assertThrows;

import com.google.protobuf.ByteString;
import io.github.gradwire.v1.DownloadResponse;
import java.nio.ByteBuffer;
import java.nio.FloatBuffer;
import org.junit.jupiter.api.Test;

class BulkTest {
  private static final float[] VALUES = {1, -2.5f, 3e30f, Float.MIN_VALUE, 0};

  @Test
  void partsOfAnySizeAreTheBytesOfTheWhole() {
    Source source = Source.of(VALUES);
    byte[] whole = source.all().toByteArray();
    for (int size = 1; size <= whole.length; size++) {
      ByteString joined = ByteString.EMPTY;
      for (int at = 0; at < whole.length; at += size) {
        joined = joined.concat(source.part(at, Math.min(size, whole.length - at)));
      }
      assertArrayEquals(whole, joined.toByteArray(), "parts of " + size + " bytes");
    }
  }

  @Test
  void aPartThatDoesNotFollowIsRefused() {
    DownloadResponse part =
        DownloadResponse.newBuilder()
            .setOffset(4)
            .setData(ByteString.copyFrom(new byte[4]))
            .build();
    assertDoesNotThrow(() -> Bulk.check(part, 4, 8));
    assertThrows(GradwireException.class, () -> Bulk.check(part, 0, 8)); // bytes are missing
    assertThrows(GradwireException.class, () -> Bulk.check(part, 4, 7)); // one too many
  }

  @Test
  void valuesAreTheSameFromPartsOfAnySize() {
    byte[] whole = Source.of(VALUES).all().toByteArray();
    for (int size = 1; size <= whole.length; size++) {
      FloatBuffer made = FloatBuffer.allocate(VALUES.length);
      Collector collector = new Collector(Float.BYTES, part -> made.put(part.asFloatBuffer()));
      for (int at = 0; at < whole.length; at += size) {
        collector.take(ByteBuffer.wrap(whole, at, Math.min(size, whole.length - at)));
      }
      assertArrayEquals(VALUES, made.array(), "parts of " + size + " bytes");
    }
  }
}
