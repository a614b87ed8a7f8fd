package io.github.gradwire;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import io.github.gradwire.v1.DescribeRequest;
import io.github.gradwire.v1.ListOpsRequest;
import io.github.gradwire.v1.ListOpsResponse;
import io.github.gradwire.v1.Reason;
import io.github.gradwire.v1.ServerInfoRequest;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** What a program sees of a session on a live server. */
@Timeout(120)
class SessionTest {
  private Session session;

  @BeforeEach
  void connect() {
    session = TestServer.connect();
  }

  @AfterEach
  void close() {
    if (session != null) {
      session.close();
    }
  }

  private static void check(Tensor tensor, double... wanted) {
    assertArrayEquals(wanted, tensor.doubles(), 1e-4);
  }

  @Test
  void generatedOpsAreTheServers() {
    ListOpsRequest request = ListOpsRequest.newBuilder().setKnownHash(Session.OPS_HASH).build();
    ListOpsResponse listed = session.stub().listOps(request);
    assertEquals(Session.OPS_HASH, listed.getHash(), "run `python -m tools.sdk_ops`");
    assertEquals(0, listed.getOpsCount());
  }

  @Test
  void typedOps() {
    Tensor a = session.tensor(new float[] {3, 1, 2, 6, 5, 4}, 2, 3);
    Results.ValuesIndices sorted = a.sort(o -> o.descending(true));
    check(sorted.values(), 3, 2, 1, 6, 5, 4);
    check(sorted.indices(), 0, 2, 1, 0, 1, 2);
    check(a.maxDim(1).values(), 3, 6);
    check(a.max(), 6);
    check(a.sum(o -> o.dim(0)), 9, 6, 6);
    check(a.clamp(o -> o.min(2).max(4.5)), 3, 2, 2, 4.5, 4.5, 4);
    check(Torch.cat(List.of(a, a)).sum(), 42);
    check(Torch.where(a.gt(3), a, 0), 0, 0, 0, 6, 5, 4);
    check(session.arange(4), 0, 1, 2, 3);
    check(session.zeros(new long[] {2}, o -> o.dtype(DType.INT64)), 0, 0);
    check(a.view(3, 2).T().get(0), 3, 2, 5);
    check(a.index(Index.at(1), Index.range(0, 2)), 6, 5);
    check(a.add(1).setIndex(0.0, Index.all(), Index.at(0)), 0, 2, 3, 0, 6, 5);
    check(a.index(Index.pick(a.gt(4))), 6, 5);
    check(a.softmax(1).sum(), 2);
    check(Functional.leakyRelu(a.neg()), -0.03, -0.01, -0.02, -0.06, -0.05, -0.04);
    check(Linalg.norm(a), Math.sqrt(91));
    check(Fft.fft(a).abs().sum(), 21 + 4 * Math.sqrt(3));
    check(a.mul(new Complex(0, 1)).abs().sum(), 21);
    List<Tensor> parts = a.splitInt(2, o -> o.dim(1));
    assertEquals(2, parts.size());
    check(parts.get(1), 2, 4);
  }

  @Test
  void mistakesHavePyTorchsSentences() {
    Tensor a = session.tensor(new float[] {1, 2, 3, 4, 5, 6}, 2, 3);
    Tensor failed = a.matmul(a);
    var shape = assertThrows(GradwireException.Shape.class, () -> failed.exp().floats());
    assertEquals("mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)", shape.getMessage());
    assertEquals("matmul", shape.op());
    assertArrayEquals(new long[] {2, 3}, shape.shape());
    Tensor leaf = session.scalar(1).requiresGrad(true);
    leaf.addInPlace(1);
    var graph = assertThrows(GradwireException.Graph.class, session::await);
    assertEquals(Reason.REASON_LEAF_IN_PLACE, graph.reason());
    String sentence = "a leaf Variable that requires grad is being used in an in-place operation";
    assertTrue(graph.getMessage().contains(sentence), graph.getMessage());
    session.await(); // a failure is told once
    leaf.mul(session.tensor(new float[] {1, 2})).backward();
    graph = assertThrows(GradwireException.Graph.class, session::await);
    String scalar = "grad can be implicitly created only for scalar outputs";
    assertTrue(graph.getMessage().startsWith(scalar), graph.getMessage());
    check(a.sum(), 21);
    assertThrows(GradwireException.Shape.class, failed::read);
  }

  @Test
  void mistakesFoundHere() {
    Tensor a = session.scalar(1);
    try (Session other = TestServer.connect()) {
      Tensor b = other.scalar(1);
      assertThrows(GradwireException.Argument.class, () -> a.add(b));
      assertThrows(GradwireException.Argument.class, () -> a.setGrad(b));
    }
    float[] values = {1, 2};
    assertThrows(GradwireException.Argument.class, () -> session.tensor(values, 3));
    Number odd = new java.math.BigInteger("1");
    assertThrows(GradwireException.Argument.class, () -> a.mul(odd));
    var several = assertThrows(GradwireException.class, () -> session.tensor(values).item());
    assertEquals("a Tensor with 2 elements cannot be converted to Scalar", several.getMessage());
    assertThrows(GradwireException.ElementType.class, a::longs);
  }

  @Test
  void aClosedSession() {
    Tensor a = session.scalar(1);
    session.close();
    var told = assertThrows(GradwireException.SessionEnded.class, () -> a.add(1));
    assertEquals("the session is closed", told.getMessage());
    session.close();
  }

  @Test
  void aSessionContinuesAfterTheServerRestarts() throws Exception {
    try (TestServer.Restarting server = new TestServer.Restarting();
        Session through = Gradwire.connect(server.address, o -> o.localStream(false))) {
      Tensor sum = through.scalar(0f);
      for (int round = 0; round < 2; round++) {
        for (int count = 0; count < 200; count++) {
          sum.addInPlace(1);
        }
        if (round == 0) {
          server.restart();
        }
      }
      check(sum, 400);
      assertTrue(through.reconnects() > 0);
    }
  }

  @Test
  void aDeviceIsAskedFor() {
    Gradwire.connect(TestServer.address(), o -> o.deviceType("cpu")).close();
    var told =
        assertThrows(
            GradwireException.class,
            () -> Gradwire.connect(TestServer.address(), o -> o.deviceType("abacus")));
    assertEquals(Reason.REASON_DEVICE_UNAVAILABLE, told.reason());
  }

  @Test
  void noServer() {
    var told =
        assertThrows(
            GradwireException.Connection.class,
            () -> Gradwire.connect("127.0.0.1:1", o -> o.patience(Duration.ofMillis(50))));
    assertTrue(told.getMessage().contains("refused"), told.getMessage());
  }

  @Test
  void gradients() {
    Tensor x = session.tensor(new float[] {1, 2, 3}).requiresGrad(true);
    Tensor cubed = x.pow(3).sum();
    List<Tensor> first =
        Autograd.grad(List.of(cubed), List.of(x), options -> options.createGraph(true));
    check(first.get(0), 3, 12, 27);
    first.get(0).sum().backward();
    check(x.grad(), 6, 12, 18);
    x.zeroGrad();
    assertFalse(x.hasGrad());
    try (GradModeScope mode = session.noGrad()) {
      x.mulInPlace(2);
      try (GradModeScope inner = session.enableGrad()) {
        assertTrue(x.mul(2).describe().requiresGrad());
      }
      assertFalse(x.mul(2).describe().requiresGrad());
    }
    check(x, 2, 4, 6);
  }

  @Test
  void modesAndScopesAreOfOneThread() throws InterruptedException {
    Tensor x = session.scalar(1).requiresGrad(true);
    List<Boolean> found = new ArrayList<>();
    try (GradModeScope mode = session.noGrad()) {
      Thread other = new Thread(() -> found.add(x.mul(2).describe().requiresGrad()));
      other.start();
      other.join();
    }
    assertEquals(List.of(true), found);
  }

  @Test
  void aCustomFunction() {
    CustomFunction square =
        new CustomFunction("Square") {
          @Override
          protected Tensor forward(Context context, List<Tensor> inputs) {
            context.save(inputs.get(0));
            return inputs.get(0).mul(inputs.get(0));
          }

          @Override
          protected List<Tensor> backward(Context context, Tensor gradient) {
            return List.of(context.saved().get(0).mul(gradient).mul(2));
          }
        };
    Tensor x = session.tensor(new float[] {1, 2, 3}).requiresGrad(true);
    Tensor made = square.apply(x);
    assertEquals("SquareBackward", made.describe().gradFn());
    made.mul(10).sum().backward();
    check(x.grad(), 20, 40, 60);
    check(
        Autograd.grad(List.of(square.apply(square.apply(x)).sum()), List.of(x)).get(0), 4, 32, 108);
    try (GradModeScope mode = session.noGrad()) {
      assertFalse(square.apply(x).describe().requiresGrad());
    }
    Tensor inference;
    try (GradModeScope mode = session.inferenceMode()) {
      inference = square.apply(x);
    }
    assertThrows(GradwireException.class, () -> inference.mul(x).read());
    CustomFunction failing =
        new CustomFunction("Failing") {
          @Override
          protected Tensor forward(Context context, List<Tensor> inputs) {
            return inputs.get(0).exp();
          }

          @Override
          protected List<Tensor> backward(Context context, Tensor gradient) {
            throw new IllegalStateException("own");
          }
        };
    Tensor failed = failing.apply(x).sum();
    assertEquals("own", assertThrows(IllegalStateException.class, failed::backward).getMessage());
  }

  @Test
  void aCustomFunctionWithSeveralResults() {
    MultiOutputFunction sumAndDifference =
        new MultiOutputFunction("SumAndDifference") {
          @Override
          protected List<Tensor> forward(CustomFunction.Context context, List<Tensor> inputs) {
            Tensor a = inputs.get(0);
            Tensor b = inputs.get(1);
            return List.of(a.add(b), a.sub(b));
          }

          @Override
          protected List<Tensor> backward(CustomFunction.Context context, List<Tensor> gradients) {
            check(gradients.get(1), 0, 0); // it has no part in the loss
            return Arrays.asList(gradients.get(0).mul(3), null);
          }
        };
    Tensor a = session.tensor(new float[] {1, 2}).requiresGrad(true);
    Tensor b = session.tensor(new float[] {3, 4}).requiresGrad(true);
    List<Tensor> made = sumAndDifference.apply(a, b);
    check(made.get(0), 4, 6);
    check(made.get(1), -2, -2);
    made.get(0).sum().backward();
    check(a.grad(), 3, 3);
    assertFalse(b.hasGrad());
  }

  @Test
  void aCustomFunctionTakesNoTensorOfAnotherSession() {
    try (Session other = TestServer.connect()) {
      Tensor foreign = other.ones(2);
      CustomFunction returning =
          new CustomFunction("Returning") {
            @Override
            protected Tensor forward(Context context, List<Tensor> inputs) {
              return foreign;
            }

            @Override
            protected List<Tensor> backward(Context context, Tensor gradient) {
              return List.of(gradient);
            }
          };
      CustomFunction answering =
          new CustomFunction("Answering") {
            @Override
            protected Tensor forward(Context context, List<Tensor> inputs) {
              return inputs.get(0).mul(2);
            }

            @Override
            protected List<Tensor> backward(Context context, Tensor gradient) {
              return List.of(foreign);
            }
          };
      Tensor x = session.tensor(new float[] {1, 2}).requiresGrad(true);
      assertThrows(GradwireException.class, () -> returning.apply(x));
      Tensor loss = answering.apply(x).sum();
      GradwireException told = assertThrows(GradwireException.class, loss::backward);
      assertEquals(Reason.REASON_ARGUMENT_VALUE, told.reason());
    }
  }

  private long count() {
    session.await();
    DescribeRequest request = DescribeRequest.newBuilder().setSessionId(session.id()).build();
    return session.stub().describe(request).getTensorCount();
  }

  @Test
  void aScopeReleasesWhatIsNotKept() {
    Tensor a = session.tensor(new float[] {1, 2, 3});
    Tensor kept = null;
    for (int i = 0; i < 200; i++) {
      try (TensorScope scope = session.scope()) {
        kept = a.mul(2).add(1).exp().sum().keep();
      }
    }
    long found = count();
    assertTrue(found <= 201, found + " tensors");
    check(kept, Math.exp(3) + Math.exp(5) + Math.exp(7));
    kept.close();
    kept.close();
    session.scalar(0);
    assertTrue(count() <= found, "a closed tensor is released once");
  }

  @Test
  void theCollectorReleasesTensors() throws InterruptedException {
    Tensor a = session.tensor(new float[] {1, 2, 3});
    for (int i = 0; i < 60_000; i++) {
      a = a.add(0.0);
    }
    long found = count();
    for (int i = 0; i < 100 && found > 40_000; i++) { // the cleaner works in its own time
      Thread.sleep(20);
      session.scalar(0);
      found = count();
    }
    assertTrue(found <= 40_000, found + " tensors");
    check(a, 1, 2, 3);
  }

  @Test
  void threadsShareASession() throws InterruptedException {
    Tensor sum = session.scalar(0);
    List<Throwable> thrown = new ArrayList<>();
    List<Thread> all = new ArrayList<>();
    for (int i = 0; i < 8; i++) {
      Thread thread =
          new Thread(
              () -> {
                for (int j = 0; j < 50; j++) {
                  sum.addInPlace(1.0);
                  sum.add(1.0).item();
                }
              });
      thread.setUncaughtExceptionHandler((where, error) -> thrown.add(error));
      thread.start();
      all.add(thread);
    }
    for (Thread each : all) {
      each.join();
    }
    assertEquals(List.of(), thrown);
    check(sum, 400);
  }

  @Test
  void bulkUpAndDown() {
    byte[] data = new byte[8 << 20];
    for (int i = 0; i < data.length; i++) {
      data[i] = (byte) (i * 31 >> 3);
    }
    Tensor made = session.fromBytes(DType.UINT8, data, data.length);
    assertArrayEquals(data, made.read().bytes());
  }

  /** Messages of the server's chunk, 1 MiB, pass few of these connections. */
  @Test
  void largeValuesPassConnectionsThatCarryLessThanAChunk() throws Exception {
    try (TestServer.Cutter proxy = new TestServer.Cutter(100_000, 1_000_000);
        Session through = Gradwire.connect(proxy.address)) {
      long[] values = new long[5 << 17];
      Arrays.setAll(values, place -> place);
      assertArrayEquals(values, through.tensor(values).longs());
    }
  }

  /**
   * Each connection attaches, so the server answers; but it breaks before the batch has arrived.
   */
  @Test
  void aBatchThatNoConnectionCarriesEndsWithAnError() throws Exception {
    try (TestServer.Cutter proxy = new TestServer.Cutter(100_000, 100_000)) {
      Session through =
          Gradwire.connect(
              proxy.address, with -> with.localStream(false).patience(Duration.ofMillis(800)));
      byte[] bytes = new byte[800_000]; // within the limit of one message
      GradwireException error =
          assertThrows(
              GradwireException.class,
              () -> through.fromBytes(DType.UINT8, bytes, bytes.length).read());
      String wanted = ".*connections broke in 8 s before a batch of 800\\d{3} bytes.*";
      assertTrue(error.getMessage().matches("(?s)" + wanted), error.getMessage());
    }
  }

  @Test
  void valuesOfEveryType() {
    check(session.tensor(new double[] {1.5, -2}), 1.5, -2);
    check(session.tensor(new int[] {1, -2}), 1, -2);
    check(session.tensor(new boolean[] {true, false}), 1, 0);
    long[] longs = {1, Long.MIN_VALUE};
    assertArrayEquals(longs, session.tensor(longs).longs());
    byte[] ones = {-1, -1, -1, -1, -1, -1, -1, -1};
    check(session.fromBytes(DType.UINT8, ones, 8).get(0), 255);
    check(session.fromBytes(DType.INT8, ones, 8).get(0), -1);
    check(session.fromBytes(DType.UINT16, ones, 4).get(0), 65535);
    check(session.fromBytes(DType.INT16, ones, 4).get(0), -1);
    check(session.fromBytes(DType.UINT32, ones, 2).get(0), 4294967295.0);
    assertArrayEquals(new double[] {0x1p64}, session.fromBytes(DType.UINT64, ones, 1).doubles());
    byte[] halves = {0, 0x3c, 1, 0, 0, (byte) 0xfc, 0x55, (byte) 0xb5};
    double[] found = session.fromBytes(DType.FLOAT16, halves, 4).doubles();
    assertArrayEquals(new double[] {1, 0x1p-24, Double.NEGATIVE_INFINITY, -0.333251953125}, found);
    check(session.fromBytes(DType.BFLOAT16, new byte[] {(byte) 0x80, 0x3f}, 1), 1);
  }

  @Test
  void aProgramsMistakes() {
    Tensor outer = session.tensor(new float[] {1, 2, 3});
    List<Input> inputs = List.of(Input.of(3));
    assertThrows(
        GradwireException.Argument.class,
        () -> session.trace(inputs, 0, (p, in, n) -> List.of(in.get(0).add(outer))));
    assertThrows(
        GradwireException.Unsupported.class,
        () ->
            session.trace(
                inputs,
                0,
                (p, in, n) -> {
                  in.get(0).item();
                  return in;
                }));
    assertThrows(
        GradwireException.Unsupported.class,
        () ->
            session.trace(
                inputs, 0, (p, in, n) -> List.of(p.call("nonsense").tensor("", in.get(0)).one())));
    assertThrows(
        GradwireException.Unsupported.class,
        () ->
            session.trace(
                inputs,
                0,
                (p, in, n) -> {
                  in.get(0).registerHook(gradient -> null);
                  return in;
                }));
    Program scaled =
        session.trace(inputs, 1, (p, in, n) -> List.of(in.get(0).mul(n.get(0)).detach()));
    check(scaled.run(List.of(outer), o -> o.numbers(2)).get(0), 2, 4, 6);
    assertThrows(GradwireException.Argument.class, () -> scaled.run(List.of()));
    Tensor wrong = scaled.run(List.of(session.scalar(1)), o -> o.numbers(2)).get(0);
    assertThrows(GradwireException.class, wrong::read);
    session.await(); // the refusal was told
  }

  @Test
  void programsThatTheServerForgetsAreRegisteredAgain() {
    ServerInfoRequest request = ServerInfoRequest.getDefaultInstance();
    int most = (int) session.stub().serverInfo(request).getLimits().getMaxPrograms();
    assertTrue(most < 1000, "the server keeps too many programs for this test: " + most);
    Tensor x = session.tensor(new float[] {1});
    List<Program> programs = new ArrayList<>();
    for (int i = 0; i < most + 2; i++) {
      double given = i;
      programs.add(
          session.trace(List.of(Input.of(1)), 0, (p, in, n) -> List.of(in.get(0).add(given))));
    }
    for (int i = 0; i < programs.size(); i++) {
      check(programs.get(i).run(List.of(x)).get(0), 1.0 + i);
    }
  }

  @Test
  void anExportedModelTrainsAsInPyTorch() throws Exception {
    Path folder = TestServer.conformance();
    JsonObject fit =
        JsonParser.parseString(Files.readString(folder.resolve("model.json"))).getAsJsonObject();
    JsonArray rows = fit.getAsJsonArray("x");
    int columns = rows.get(0).getAsJsonArray().size();
    float[] flat = new float[rows.size() * columns];
    for (int i = 0; i < flat.length; i++) {
      flat[i] = rows.get(i / columns).getAsJsonArray().get(i % columns).getAsFloat();
    }
    Map<String, Tensor> inputs =
        Map.of(
            "x", session.tensor(flat, rows.size(), columns),
            "y", session.tensor(ScenarioRunner.integers(fit.get("y"))));
    JsonArray losses = fit.getAsJsonArray("losses");
    byte[] data = Files.readAllBytes(folder.resolve("model.safetensors"));
    // Half of the steps, and the others after the model was saved and loaded.
    for (int half = 0; half < 2; half++) {
      try (ProgramFile model = session.loadProgram(data)) {
        for (int i = 0; i < losses.size() / 2; i++) {
          double wanted = losses.get(half * losses.size() / 2 + i).getAsDouble();
          double loss = model.program().run(inputs).get(0).item();
          assertEquals(wanted, loss, 1e-5 * wanted, "step " + i);
        }
        data = model.save();
        assertThrows(GradwireException.Argument.class, () -> model.program("nonsense"));
        assertEquals(List.of("x", "y"), model.program().inputs().stream().sorted().toList());
      }
    }
    byte[] nonsense = "no file".getBytes(java.nio.charset.StandardCharsets.UTF_8);
    assertThrows(GradwireException.class, () -> session.loadProgram(nonsense));
  }

  @Test
  void aFileWhoseProgramsTheServerForgetsIsLoadedAgain() throws Exception {
    byte[] data = Files.readAllBytes(TestServer.conformance().resolve("model.safetensors"));
    ProgramFile.Step step = session.loadProgram(data).program();
    Map<String, Tensor> inputs =
        Map.of("x", session.tensor(new float[24], 6, 4).add(1), "y", session.tensor(new long[6]));
    double before = step.run(inputs).get(0).item();
    for (int i = 0; i < session.opened.getLimits().getMaxPrograms(); i++) {
      double place = i;
      session.trace(List.of(Input.of(1)), 0, (p, in, n) -> List.of(in.get(0).add(place)));
    }
    double after = step.run(inputs).get(0).item();
    assertTrue(after < before, before + ", then " + after);
    assertTrue(step.run(inputs).get(0).item() < after);
  }

  @Test
  void anUnusedInputHasNoGradient() {
    Tensor x = session.scalar(1).requiresGrad(true);
    Tensor y = session.scalar(1).requiresGrad(true);
    List<Tensor> found = Autograd.grad(List.of(x.mul(2)), List.of(x, y), o -> o.allowUnused(true));
    check(found.get(0), 2);
    assertNull(found.get(1));
  }
}
