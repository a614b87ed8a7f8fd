package io.github.gradwire;

import io.github.gradwire.v1.Argument;
import io.github.gradwire.v1.AutogradServiceGrpc.AutogradServiceBlockingStub;
import io.github.gradwire.v1.BackwardRequest;
import io.github.gradwire.v1.Dtype;
import io.github.gradwire.v1.GradMode;
import io.github.gradwire.v1.GradRequest;
import io.github.gradwire.v1.IntList;
import io.github.gradwire.v1.OpRequest;
import io.github.gradwire.v1.OpenSessionRequest;
import io.github.gradwire.v1.ReleaseRequest;
import io.github.gradwire.v1.SetGradRequest;
import io.github.gradwire.v1.SetRequiresGradRequest;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;

/**
 * Takes training steps of a small network for `python -m benchmarks.languages`: it reads lines
 * "mode steps" and answers each with the seconds that they took.
 */
final class W2 {
  private static final int BATCH = 128;
  private static final double RATE = 0.01;
  private static final int[] SIZES = {64, 256, 10};

  private final Session session;
  private final List<Tensor> bound = new ArrayList<>(); // parameters, inputs, labels
  private final Program program;
  private final Unary unary;

  /** Takes the server's address. */
  public static void main(String[] args) throws IOException {
    BufferedReader lines =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    try (Session session = Gradwire.connect(args[0])) {
      W2 bench = new W2(session);
      for (String line = lines.readLine(); line != null; line = lines.readLine()) {
        String[] words = line.split(" ");
        long begun = System.nanoTime();
        bench.take(words[0], Integer.parseInt(words[1]));
        System.out.println((System.nanoTime() - begun) / 1e9);
      }
    }
  }

  private W2(Session session) {
    this.session = session;
    Random random = new Random(0);
    for (int i = 0; i + 1 < SIZES.length; i++) {
      float[] weights = normal(random, SIZES[i] * SIZES[i + 1], 1 / Math.sqrt(SIZES[i]));
      bound.add(session.tensor(weights, SIZES[i], SIZES[i + 1]).requiresGrad(true));
      bound.add(session.zeros(SIZES[i + 1]).requiresGrad(true));
    }
    bound.add(session.tensor(normal(random, BATCH * SIZES[0], 1), BATCH, SIZES[0]));
    bound.add(session.tensor(random.longs(BATCH, 0, SIZES[2]).toArray()));
    List<Input> inputs = bound.stream().map(Input::like).toList();
    program =
        session.trace(
            inputs, 0, (recording, given, numbers) -> List.of(step(recording, given).detach()));
    unary = new Unary(session.stub());
  }

  private static float[] normal(Random random, int count, double scale) {
    float[] made = new float[count];
    for (int i = 0; i < count; i++) {
      made[i] = (float) (random.nextGaussian() * scale);
    }
    return made;
  }

  /** A step of gradient descent. */
  private static Tensor step(Session session, List<Tensor> given) {
    Tensor hidden = given.get(4).matmul(given.get(0)).add(given.get(1)).relu();
    Tensor outputs = hidden.matmul(given.get(2)).add(given.get(3));
    Tensor loss = Functional.crossEntropy(outputs, given.get(5));
    loss.backward();
    try (GradModeScope mode = session.noGrad()) {
      for (Tensor each : given.subList(0, 4)) {
        each.subInPlace(each.grad().mul(RATE));
        each.zeroGrad();
      }
    }
    return loss;
  }

  /** Takes steps and reads the last loss. */
  private void take(String mode, int steps) {
    if (mode.equals("unary")) {
      unary.take(steps);
      return;
    }
    Tensor loss = null;
    if (mode.equals("repeated")) {
      loss = program.run(bound, o -> o.repeat(steps)).get(0);
    } else {
      for (int i = 0; i < steps; i++) {
        if (loss != null) {
          loss.close();
        }
        try (TensorScope scope = session.scope()) {
          loss = mode.equals("program") ? program.run(bound).get(0) : step(session, bound);
          loss.keep();
        }
      }
    }
    double value = loss.item();
    loss.close();
    if (!(value > 0)) {
      throw new IllegalStateException("the loss is " + value);
    }
  }

  /** Takes the steps by single calls of the generated stub, each of which waits. */
  private static final class Unary {
    private final AutogradServiceBlockingStub stub;
    private final String session;
    private final long inputs;
    private final long labels;
    private final List<Long> parameters = new ArrayList<>();
    private final List<Long> made = new ArrayList<>();

    Unary(AutogradServiceBlockingStub stub) {
      this.stub = stub;
      session = stub.openSession(OpenSessionRequest.getDefaultInstance()).getSessionId();
      GradMode on = GradMode.GRAD_MODE_ENABLED;
      inputs = op("randn", on, sizes(BATCH, SIZES[0]));
      Argument dtype = Argument.newBuilder().setName("dtype").setDtype(Dtype.DTYPE_INT64).build();
      labels = op("zeros", on, sizes(BATCH), dtype);
      for (int i = 0; i + 1 < SIZES.length; i++) {
        parameters.add(op("randn", on, sizes(SIZES[i], SIZES[i + 1])));
        parameters.add(op("zeros", on, sizes(SIZES[i + 1])));
      }
      for (long each : parameters) {
        stub.setRequiresGrad(
            SetRequiresGradRequest.newBuilder()
                .setSessionId(session)
                .setTensor(each)
                .setRequiresGrad(true)
                .build());
      }
    }

    private static Argument sizes(long... sizes) {
      IntList.Builder list = IntList.newBuilder();
      for (long each : sizes) {
        list.addValues(each);
      }
      return Argument.newBuilder().setIntegers(list).build();
    }

    private static Argument tensor(long id) {
      return Argument.newBuilder().setTensor(id).build();
    }

    private long op(String name, GradMode mode, Argument... args) {
      OpRequest request =
          OpRequest.newBuilder()
              .setSessionId(session)
              .setOp(name)
              .addAllArgs(List.of(args))
              .setGradMode(mode)
              .build();
      long id = stub.op(request).getOutputs(0).getId();
      made.add(id);
      return id;
    }

    void take(int steps) {
      for (int i = 0; i < steps; i++) {
        made.clear();
        step();
        stub.release(ReleaseRequest.newBuilder().setSessionId(session).addAllTensors(made).build());
      }
    }

    private void step() {
      GradMode on = GradMode.GRAD_MODE_ENABLED;
      GradMode off = GradMode.GRAD_MODE_DISABLED;
      long hidden = op("matmul", on, tensor(inputs), tensor(parameters.get(0)));
      hidden = op("relu", on, tensor(op("add", on, tensor(hidden), tensor(parameters.get(1)))));
      hidden = op("matmul", on, tensor(hidden), tensor(parameters.get(2)));
      hidden = op("add", on, tensor(hidden), tensor(parameters.get(3)));
      long loss = op("cross_entropy", on, tensor(hidden), tensor(labels));
      stub.backward(BackwardRequest.newBuilder().setSessionId(session).addTensors(loss).build());
      for (long each : parameters) {
        GradRequest ask = GradRequest.newBuilder().setSessionId(session).setTensor(each).build();
        long gradient = stub.grad(ask).getGrad().getId();
        made.add(gradient);
        Argument rate = Argument.newBuilder().setFloat(RATE).build();
        op("sub_", off, tensor(each), tensor(op("mul", off, tensor(gradient), rate)));
        made.remove(made.size() - 1); // the parameter itself
        stub.setGrad(SetGradRequest.newBuilder().setSessionId(session).setTensor(each).build());
      }
    }
  }
}
