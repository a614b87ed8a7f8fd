package io.github.gradwire;

import com.google.protobuf.ByteString;
import com.google.protobuf.UnsafeByteOperations;
import io.github.gradwire.v1.Argument;
import io.github.gradwire.v1.AutogradServiceGrpc;
import io.github.gradwire.v1.AutogradServiceGrpc.AutogradServiceBlockingStub;
import io.github.gradwire.v1.BackwardRequest;
import io.github.gradwire.v1.CreateRequest;
import io.github.gradwire.v1.DownloadRequest;
import io.github.gradwire.v1.DownloadResponse;
import io.github.gradwire.v1.Dtype;
import io.github.gradwire.v1.GradMode;
import io.github.gradwire.v1.GradRequest;
import io.github.gradwire.v1.IntList;
import io.github.gradwire.v1.OpRequest;
import io.github.gradwire.v1.OpenSessionRequest;
import io.github.gradwire.v1.OpenSessionResponse;
import io.github.gradwire.v1.ReadRequest;
import io.github.gradwire.v1.ReleaseRequest;
import io.github.gradwire.v1.SetGradRequest;
import io.github.gradwire.v1.SetRequiresGradRequest;
import io.github.gradwire.v1.Transfer;
import io.github.gradwire.v1.UploadRequest;
import io.github.gradwire.v1.UploadResponse;
import io.github.gradwire.v1.UploadStart;
import io.grpc.stub.ClientCallStreamObserver;
import io.grpc.stub.ClientResponseObserver;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CompletableFuture;

/** Java's side of `python -m benchmarks.languages`, which documents the lines that it reads. */
final class W2 {
  private static final int BATCH = 128;
  private static final double RATE = 0.01;
  private static final int[] SIZES = {64, 256, 10};
  private static final int SMALL_BATCH = 4; // of the mode "memory"
  private static final int[] SMALL = {8, 8, 4};

  private final Session session;
  private final List<Tensor> bound; // parameters, inputs, labels
  private final List<Tensor> small; // the same of the mode "memory"
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
        System.out.println(bench.answer(words[0], Integer.parseInt(words[1])));
      }
    }
  }

  private static double seconds(long begun) {
    return (System.nanoTime() - begun) / 1e9;
  }

  /** The seconds of a line's work. */
  private double answer(String mode, int count) {
    switch (mode) {
      case "upload":
        return upload(count);
      case "download":
        return download(count);
      case "bare-upload":
        return unary.upload(count);
      case "bare-download":
        return unary.download(count);
      case "live":
        return live();
      default:
        long begun = System.nanoTime();
        take(mode, count);
        return seconds(begun);
    }
  }

  /** Bytes that live after collections of garbage. */
  private static double live() {
    System.gc();
    System.gc(); // what the first one enqueued for the cleaner
    return Runtime.getRuntime().totalMemory() - Runtime.getRuntime().freeMemory();
  }

  private double upload(int mib) {
    float[] values = new float[mib << 18];
    long begun = System.nanoTime();
    try (Tensor made = session.tensor(values)) {
      session.await();
      return seconds(begun);
    }
  }

  private double download(int mib) {
    try (Tensor held = session.ones(mib << 18)) {
      session.await();
      long begun = System.nanoTime();
      float[] values = held.floats();
      double taken = seconds(begun);
      if (values[values.length - 1] != 1) {
        throw new IllegalStateException("the values are wrong");
      }
      return taken;
    }
  }

  private W2(Session session) {
    this.session = session;
    bound = bound(session, SIZES, BATCH);
    small = bound(session, SMALL, SMALL_BATCH);
    List<Input> inputs = bound.stream().map(Input::like).toList();
    program =
        session.trace(
            inputs, 0, (recording, given, numbers) -> List.of(step(recording, given).detach()));
    unary = new Unary(session.stub());
  }

  private static List<Tensor> bound(Session session, int[] sizes, int batch) {
    Random random = new Random(0);
    List<Tensor> made = new ArrayList<>();
    for (int i = 0; i + 1 < sizes.length; i++) {
      float[] weights = normal(random, sizes[i] * sizes[i + 1], 1 / Math.sqrt(sizes[i]));
      made.add(session.tensor(weights, sizes[i], sizes[i + 1]).requiresGrad(true));
      made.add(session.zeros(sizes[i + 1]).requiresGrad(true));
    }
    made.add(session.tensor(normal(random, batch * sizes[0], 1), batch, sizes[0]));
    made.add(session.tensor(random.longs(batch, 0, sizes[2]).toArray()));
    return made;
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
          List<Tensor> given = mode.equals("memory") ? small : bound;
          loss = mode.equals("program") ? program.run(bound).get(0) : step(session, given);
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

  /** Takes the steps by single calls of the stub, each of which waits; moves large values, too. */
  private static final class Unary {
    private final AutogradServiceBlockingStub stub;
    private final String session;
    private final int chunk;
    private final long inputs;
    private final long labels;
    private final List<Long> parameters = new ArrayList<>();
    private final List<Long> made = new ArrayList<>();

    Unary(AutogradServiceBlockingStub stub) {
      this.stub = stub;
      OpenSessionResponse opened = stub.openSession(OpenSessionRequest.getDefaultInstance());
      session = opened.getSessionId();
      chunk = (int) opened.getLimits().getChunkBytes();
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

    /** Seconds of an upload. */
    double upload(int mib) {
      byte[] data = new byte[mib << 20];
      long begun = System.nanoTime();
      Sender sender = new Sender(data);
      AutogradServiceGrpc.newStub(stub.getChannel()).upload(sender);
      String transfer = sender.answer.join().getTransferId();
      double taken = seconds(begun);
      Transfer.Builder made =
          Transfer.newBuilder()
              .setTransferId(transfer)
              .setDtype(Dtype.DTYPE_UINT8)
              .addShape(data.length)
              .setTotalBytes(data.length);
      CreateRequest request =
          CreateRequest.newBuilder().setSessionId(session).setTransfer(made).build();
      release(stub.create(request).getTensor().getId());
      return taken;
    }

    private void release(long id) {
      stub.release(ReleaseRequest.newBuilder().setSessionId(session).addTensors(id).build());
    }

    /** Sends bytes as fast as the transport takes them. */
    private final class Sender implements ClientResponseObserver<UploadRequest, UploadResponse> {
      final CompletableFuture<UploadResponse> answer = new CompletableFuture<>();
      private final byte[] data;
      private int at = -1; // the first message has no data
      private boolean complete;

      Sender(byte[] data) {
        this.data = data;
      }

      @Override
      public void beforeStart(ClientCallStreamObserver<UploadRequest> stream) {
        stream.setOnReadyHandler(() -> more(stream));
      }

      private void more(ClientCallStreamObserver<UploadRequest> stream) {
        while (stream.isReady() && !complete) {
          if (at < 0) {
            UploadStart.Builder start =
                UploadStart.newBuilder().setSessionId(session).setTotalBytes(data.length);
            stream.onNext(UploadRequest.newBuilder().setStart(start).build());
            at = 0;
          } else if (at < data.length) {
            int size = Math.min(chunk, data.length - at);
            ByteString part = UnsafeByteOperations.unsafeWrap(data, at, size);
            stream.onNext(UploadRequest.newBuilder().setData(part).build());
            at += size;
          } else {
            complete = true;
            stream.onCompleted();
          }
        }
      }

      @Override
      public void onNext(UploadResponse message) {
        answer.complete(message);
      }

      @Override
      public void onError(Throwable thrown) {
        answer.completeExceptionally(thrown);
      }

      @Override
      public void onCompleted() {}
    }

    /** Seconds of a download. */
    double download(int mib) {
      long held = op("ones", GradMode.GRAD_MODE_DISABLED, sizes((long) mib << 18));
      ReadRequest ask = ReadRequest.newBuilder().setSessionId(session).setTensor(held).build();
      String transfer = stub.read(ask).getTransfer().getTransferId();
      DownloadRequest request =
          DownloadRequest.newBuilder().setSessionId(session).setTransferId(transfer).build();
      long begun = System.nanoTime();
      byte[] data = new byte[mib << 20];
      int received = 0;
      Iterator<DownloadResponse> parts = stub.download(request);
      while (parts.hasNext()) {
        ByteString part = parts.next().getData();
        part.copyTo(data, received);
        received += part.size();
      }
      double taken = seconds(begun);
      if (received != data.length) {
        throw new IllegalStateException(received + " bytes came");
      }
      release(held);
      return taken;
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
