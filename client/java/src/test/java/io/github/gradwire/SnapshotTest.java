package io.github.gradwire;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.github.gradwire.v1.Reason;
import java.time.Duration;
import java.util.Map;
import org.junit.jupiter.api.Test;

class SnapshotTest {
  @Test
  void aSnapshotContinuesWhereItWasSaved() {
    String name = "java-snapshot";
    try (Session session = TestServer.connect()) {
      Tensor w = session.tensor(new float[] {1, 2, 3}).requiresGrad(true);
      Tensor loss = w.mul(w).sum();
      session.save(name, Map.of("w", w, "loss", loss, "again", w), Duration.ofMinutes(1));
      try (GradModeScope mode = session.noGrad()) {
        w.mulInPlace(100); // after the snapshot
      }
      try (Restored restored = Gradwire.restore(TestServer.address(), name)) {
        Map<String, Tensor> tensors = restored.tensors();
        tensors.get("loss").backward(); // the graph was saved, too
        assertArrayEquals(new float[] {2, 4, 6}, tensors.get("w").grad().floats());
        assertArrayEquals(new float[] {1, 2, 3}, tensors.get("again").floats());
        Session second = restored.session();
        GradwireException foreign =
            assertThrows(
                GradwireException.class, () -> second.save(name, Map.of("w", w), Duration.ZERO));
        assertEquals(Reason.REASON_ARGUMENT_VALUE, foreign.reason());
      }
      session.deleteSnapshot(name);
      GradwireException gone =
          assertThrows(GradwireException.class, () -> Gradwire.restore(TestServer.address(), name));
      assertEquals(Reason.REASON_SNAPSHOT_NOT_FOUND, gone.reason());
    }
  }

  @Test
  void aSnapshotIsRestoredAtTheServerThatTheFirstOneNames() {
    String name = "java-placed";
    String moving = TestServer.needed("GRADWIRE_MOVING");
    try (Session session = TestServer.connect()) {
      session.save(name, Map.of("w", session.ones(2)), Duration.ofMinutes(1));
      try (Restored restored = Gradwire.restore(moving, name)) {
        assertArrayEquals(new float[] {1, 1}, restored.tensors().get("w").floats());
      }
      session.deleteSnapshot(name);
    }
  }
}
