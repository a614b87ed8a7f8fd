package io.github.gradwire.examples;

import io.github.gradwire.Gradwire;
import io.github.gradwire.ProgramFile;
import io.github.gradwire.Session;
import io.github.gradwire.Tensor;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/**
 * Trains a model that Python exported with its optimizer. This program knows neither layers nor
 * Adam: the file has them.
 */
public final class ExportedModel {
  private ExportedModel() {}

  /** Takes the server's address, the model's file, and the file for the trained model. */
  public static void main(String[] args) throws IOException {
    String address = args.length > 0 ? args[0] : "127.0.0.1:50051";
    String model = args.length > 1 ? args[1] : "../../tests/conformance/model.safetensors";
    Path trained = args.length > 2 ? Path.of(args[2]) : null;
    List<Double> losses = train(address, Path.of(model), trained, 50);
    System.out.printf("loss %.4f, then %.4f%n", losses.get(0), losses.get(losses.size() - 1));
  }

  /** Returns the losses of the steps. Writes the trained model unless its path is null. */
  static List<Double> train(String address, Path file, Path trained, int steps) throws IOException {
    try (Session session = Gradwire.connect(address);
        ProgramFile model = session.loadProgram(Files.readAllBytes(file))) {
      // Six points of four numbers, each near the corner that its label names.
      Tensor x = session.eye(6, o -> o.m(4)).mul(2);
      Tensor y = session.tensor(new long[] {0, 1, 2, 0, 1, 1});
      Map<String, Tensor> inputs = Map.of("x", x, "y", y);
      List<Double> losses = new ArrayList<>();
      for (int step = 0; step < steps; step++) {
        try (Tensor loss = model.program().run(inputs).get(0)) {
          losses.add(loss.item());
        }
      }
      if (trained != null) {
        Files.write(trained, model.save());
      }
      return losses;
    }
  }
}
