package io.github.gradwire.examples;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The examples do what they say. */
class ExamplesTest {
  private static String address() {
    String address = System.getenv("GRADWIRE_ADDRESS");
    assumeTrue(address != null, "needs a server: set GRADWIRE_ADDRESS, or run make test-sdks");
    return address;
  }

  @Test
  void aLineIsFitted() {
    assertArrayEquals(new double[] {3, -1}, LineFit.fit(address()), 1e-3);
  }

  @Test
  void digitsAreLearned() throws IOException {
    Path data = Path.of("../../examples/data/digits.csv.gz");
    double accuracy = Digits.train(address(), data, 30);
    assertTrue(accuracy > 0.93, "accuracy is " + accuracy);
  }

  @Test
  void anExportedModelIsTrained(@TempDir Path folder) throws IOException {
    Path model = Path.of("../../tests/conformance/model.safetensors");
    Path trained = folder.resolve("trained.safetensors");
    List<Double> losses = ExportedModel.train(address(), model, trained, 40);
    double last = losses.get(losses.size() - 1);
    assertTrue(last < 0.5 * losses.get(0), "the losses are " + losses);
    assertTrue(Files.size(trained) > 0);
    List<Double> later = ExportedModel.train(address(), trained, null, 1);
    assertTrue(later.get(0) <= last, "training continues where it ended");
  }
}
