package io.github.gradwire.examples;

import io.github.gradwire.DType;
import io.github.gradwire.Functional;
import io.github.gradwire.GradModeScope;
import io.github.gradwire.Gradwire;
import io.github.gradwire.Input;
import io.github.gradwire.Program;
import io.github.gradwire.Session;
import io.github.gradwire.Tensor;
import io.github.gradwire.TensorScope;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import java.util.zip.GZIPInputStream;

/**
 * Trains a classifier of handwritten digits. A training step is a program: the server runs an epoch
 * by one command.
 */
public final class Digits {
  private static final int PIXELS = 64;
  private static final int HIDDEN = 256;
  private static final int ROWS = 128; // of a batch
  private static final int HELD = 360; // images for the test

  private Digits() {}

  /** Takes the server's address and the file of images. */
  public static void main(String[] args) throws IOException {
    String address = args.length > 0 ? args[0] : "127.0.0.1:50051";
    Path path = Path.of(args.length > 1 ? args[1] : "../../examples/data/digits.csv.gz");
    double accuracy = train(address, path, 40);
    System.out.printf("accuracy on %d images that it has not seen: %.3f%n", HELD, accuracy);
  }

  /** Pixels within [0, 1], row by row, and the digits. */
  private record Images(float[] pixels, long[] digits) {
    /** The images from one place to another. */
    Tensor x(Session session, int from, int to) {
      float[] part = Arrays.copyOfRange(pixels, from * PIXELS, to * PIXELS);
      return session.tensor(part, to - from, PIXELS);
    }

    Tensor y(Session session, int from, int to) {
      return session.tensor(Arrays.copyOfRange(digits, from, to));
    }
  }

  /** Returns the accuracy on images that the model has not seen. */
  static double train(String address, Path path, int epochs) throws IOException {
    Images images = load(path);
    int all = images.digits.length;
    int count = all - HELD;
    try (Session session = Gradwire.connect(address)) {
      session.manualSeed(0);
      List<Tensor> parameters =
          List.of(
              layer(session, PIXELS, HIDDEN),
              session.zeros(HIDDEN).requiresGrad(true),
              layer(session, HIDDEN, 10),
              session.zeros(10).requiresGrad(true));
      List<Tensor> bound = new ArrayList<>(parameters);
      bound.add(images.x(session, 0, count));
      bound.add(images.y(session, 0, count));
      Program step = trace(session, parameters);
      for (int epoch = 1; epoch <= epochs; epoch++) {
        try (TensorScope scope = session.scope()) {
          List<Tensor> losses =
              step.run(bound, o -> o.numbers(0.2).repeat(count / ROWS).sliced(4, 5).stacked());
          if (epoch % 10 == 0) {
            System.out.printf("epoch %d: loss %.4f%n", epoch, losses.get(0).mean().item());
          }
        }
      }
      try (GradModeScope mode = session.noGrad()) {
        Tensor best = forward(parameters, images.x(session, count, all)).argmax(o -> o.dim(1));
        return best.eq(images.y(session, count, all)).to(o -> o.dtype(DType.FLOAT32)).mean().item();
      }
    }
  }

  /** A matrix of weights, uniform within 1/√inputs as PyTorch's Linear makes them. */
  private static Tensor layer(Session session, int inputs, int outputs) {
    double bound = 1 / Math.sqrt(inputs);
    return session.rand(inputs, outputs).sub(0.5).mul(2 * bound).detach().requiresGrad(true);
  }

  private static Tensor forward(List<Tensor> parameters, Tensor x) {
    Tensor inner = x.matmul(parameters.get(0)).add(parameters.get(1)).relu();
    return inner.matmul(parameters.get(2)).add(parameters.get(3));
  }

  /** Makes the program of a step of gradient descent. Its number is the learning rate. */
  private static Program trace(Session session, List<Tensor> parameters) {
    List<Input> inputs = new ArrayList<>();
    parameters.forEach(each -> inputs.add(Input.like(each)));
    inputs.add(Input.of(ROWS, PIXELS));
    inputs.add(Input.of(DType.INT64, ROWS));
    return session.trace(
        inputs,
        1,
        (recording, given, numbers) -> {
          List<Tensor> trained = given.subList(0, 4);
          Tensor loss = Functional.crossEntropy(forward(trained, given.get(4)), given.get(5));
          loss.backward();
          try (GradModeScope mode = recording.noGrad()) {
            for (Tensor each : trained) {
              each.subInPlace(each.grad(), o -> o.alpha(numbers.get(0)));
              each.zeroGrad();
            }
          }
          return List.of(loss.detach());
        });
  }

  /** Reads the images, in a random order. */
  private static Images load(Path path) throws IOException {
    List<String> lines;
    try (BufferedReader reader =
        new BufferedReader(
            new InputStreamReader(
                new GZIPInputStream(Files.newInputStream(path)), StandardCharsets.UTF_8))) {
      lines = new ArrayList<>(reader.lines().toList());
    }
    Collections.shuffle(lines, new Random(0));
    Images images = new Images(new float[lines.size() * PIXELS], new long[lines.size()]);
    for (int row = 0; row < lines.size(); row++) {
      String[] fields = lines.get(row).split(",");
      for (int i = 0; i < PIXELS; i++) {
        images.pixels[row * PIXELS + i] = Float.parseFloat(fields[i]) / 16;
      }
      images.digits[row] = (long) Double.parseDouble(fields[PIXELS]);
    }
    return images;
  }
}
