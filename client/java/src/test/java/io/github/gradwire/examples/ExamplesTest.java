package io.github.gradwire.examples;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import com.google.gson.Gson;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import io.github.gradwire.Gradwire;
import io.github.gradwire.ProgramFile;
import io.github.gradwire.Session;
import io.github.gradwire.Tensor;
import io.github.gradwire.Torch;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
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
  void anExportedModelWithAdamHasPythonsLossesToTheLastBit() throws Exception {
    String told = System.getenv("GRADWIRE_LOSSES");
    assumeTrue(told != null, "needs the losses of Python's client: run make test-sdks");
    List<Double> wanted = new ArrayList<>();
    JsonParser.parseString(told).getAsJsonArray().forEach(each -> wanted.add(each.getAsDouble()));
    Path folder =
        Path.of(System.getenv().getOrDefault("GRADWIRE_CONFORMANCE", "../../tests/conformance"));
    JsonObject fit =
        JsonParser.parseString(Files.readString(folder.resolve("model.json"))).getAsJsonObject();
    byte[] file = Files.readAllBytes(folder.resolve("model.safetensors"));
    List<Double> losses = new ArrayList<>();
    try (Session session = Gradwire.connect(address());
        ProgramFile model = session.loadProgram(file)) {
      float[][] rows = new Gson().fromJson(fit.get("x"), float[][].class);
      List<Tensor> parts = Arrays.stream(rows).map(row -> session.tensor(row)).toList();
      Tensor y = session.tensor(new Gson().fromJson(fit.get("y"), long[].class));
      Map<String, Tensor> inputs = Map.of("x", Torch.stack(parts), "y", y);
      for (int step = 0; step < wanted.size(); step++) {
        losses.add(model.program().run(inputs).get(0).item());
      }
    }
    assertTrue(losses.size() > 0);
    assertEquals(wanted, losses);
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
