package io.github.gradwire;

import io.github.gradwire.v1.AutogradServiceGrpc.AutogradServiceBlockingStub;
import io.github.gradwire.v1.CancelRequest;
import io.github.gradwire.v1.CloseSessionRequest;
import io.github.gradwire.v1.Command;
import io.github.gradwire.v1.CreateRequest;
import io.github.gradwire.v1.DeleteSnapshotRequest;
import io.github.gradwire.v1.Error;
import io.github.gradwire.v1.GradMode;
import io.github.gradwire.v1.KeepAliveRequest;
import io.github.gradwire.v1.ManualSeedRequest;
import io.github.gradwire.v1.NamedTensor;
import io.github.gradwire.v1.OpenSessionRequest;
import io.github.gradwire.v1.OpenSessionResponse;
import io.github.gradwire.v1.RandomAlgorithm;
import io.github.gradwire.v1.Reason;
import io.github.gradwire.v1.RestoreSessionRequest;
import io.github.gradwire.v1.RestoreSessionResponse;
import io.github.gradwire.v1.RestoredTensor;
import io.github.gradwire.v1.Result;
import io.github.gradwire.v1.SaveSessionRequest;
import io.grpc.StatusRuntimeException;
import java.lang.ref.Cleaner;
import java.lang.ref.Reference;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Function;

/**
 * Holds tensors on a server. Ops only queue commands; they are sent in batches, and a refusal
 * surfaces at the next wait or read.
 *
 * <p>Threads may share a session: commands are applied in the order of their calls. {@link #noGrad}
 * and {@link #scope} concern the thread that called them.
 */
public final class Session extends SessionOps implements AutoCloseable {
  private static final Cleaner CLEANER = Cleaner.create(daemon("gradwire-cleaner"));
  private static final Duration OPENING = Duration.ofSeconds(5);
  // Tensors beyond those that the last collection left, after which another one is due.
  private static final int COLLECT_EVERY = 16_384;

  /** What a thread has chosen in a session. */
  static final class OfThread {
    GradMode mode = GradMode.GRAD_MODE_ENABLED;
    TensorScope scope;
  }

  final Sink sink;
  final Hooks hooks = new Hooks(this);
  final RecentPrograms recent;
  final OpenSessionResponse opened;
  final Duration patience;
  private final Servers servers; // null in a program
  private final Writer writer; // null in a program
  private final StreamKeeper keeper; // null in a program
  private final ScheduledExecutorService lease; // null in a program
  private final ThreadLocal<OfThread> threads;
  private final AtomicLong nextId;
  private final AtomicLong live = new AtomicLong();
  private final AtomicLong base = new AtomicLong();
  private final AtomicBoolean collecting = new AtomicBoolean();
  private final AtomicBoolean closed = new AtomicBoolean();
  private final String requestPrefix = UUID.randomUUID().toString();
  private final AtomicLong requests = new AtomicLong();

  private Session(Servers servers, OpenSessionResponse opened, ConnectOptions options) {
    this.servers = servers;
    this.opened = opened;
    this.patience = options.patience;
    this.threads = ThreadLocal.withInitial(OfThread::new);
    this.nextId = new AtomicLong(opened.getFirstId());
    this.recent = new RecentPrograms(opened.getLimits().getMaxPrograms());
    this.writer = new Writer(opened, hooks::drop);
    this.sink = writer;
    this.keeper = new StreamKeeper(servers, writer, options);
    this.lease = Executors.newSingleThreadScheduledExecutor(daemon("gradwire-lease"));
  }

  /** A session that records: of another session's limits and threads. */
  private Session(OpenSessionResponse opened, ThreadLocal<OfThread> threads, Recorder recorder) {
    this.opened = opened;
    this.threads = threads;
    servers = null;
    writer = null;
    keeper = null;
    lease = null;
    patience = Duration.ZERO;
    recent = new RecentPrograms(0);
    nextId = new AtomicLong(1);
    sink = recorder;
  }

  static Session recording(OpenSessionResponse opened, Recorder recorder) {
    return new Session(opened, ThreadLocal.withInitial(OfThread::new), recorder);
  }

  /** A session that records a program for this one. */
  Session recording(Recorder recorder) {
    return new Session(opened, threads, recorder);
  }

  static Session open(String address, ConnectOptions options) {
    OpenSessionRequest request =
        OpenSessionRequest.newBuilder()
            .setClient(options.clientName)
            .setLeaseMs((int) options.lease.toMillis())
            .setDeviceType(options.deviceType)
            .build();
    return begin(
        address,
        options,
        servers ->
            placed(
                servers,
                follows -> {
                  OpenSessionRequest placing =
                      request.toBuilder().setFollowsEndpoint(follows).build();
                  return opened(servers, options, stub -> stub.openSession(placing));
                }));
  }

  /**
   * Makes a call that opens a session: at a server, or again at the server of the cluster that its
   * answer names. The call gets whether to follow.
   */
  private static OpenSessionResponse placed(
      Servers servers, Function<Boolean, OpenSessionResponse> call) {
    OpenSessionResponse opened = call.apply(true);
    if (opened.getEndpoint().isEmpty() || !opened.getSessionId().isEmpty()) {
      return opened;
    }
    servers.leave(servers.link(), opened.getEndpoint());
    return call.apply(false); // that server opens it, whatever the load is by then
  }

  static Restored restore(String address, String name, ConnectOptions options) {
    RestoreSessionRequest request =
        RestoreSessionRequest.newBuilder()
            .setName(name)
            .setClient(options.clientName)
            .setLeaseMs((int) options.lease.toMillis())
            .setDeviceType(options.deviceType)
            .setNamedOnly(true)
            .build();
    List<RestoredTensor> named = new ArrayList<>();
    Session session =
        begin(
            address,
            options,
            servers ->
                placed(
                    servers,
                    follows -> {
                      RestoreSessionRequest placing =
                          request.toBuilder().setFollowsEndpoint(follows).build();
                      RestoreSessionResponse answer =
                          opened(servers, options, stub -> stub.restoreSession(placing));
                      named.addAll(answer.getTensorsList());
                      return answer.getSession();
                    }));
    Map<Long, Tensor> known = new HashMap<>(); // a tensor may have several names
    Map<String, Tensor> tensors = new HashMap<>();
    for (RestoredTensor each : named) {
      tensors.put(each.getName(), known.computeIfAbsent(each.getSpec().getId(), session::adopt));
    }
    return new Restored(session, Map.copyOf(tensors));
  }

  /** Makes a session of what a call opens. */
  private static Session begin(
      String address, ConnectOptions options, Function<Servers, OpenSessionResponse> open) {
    List<String> addresses =
        Arrays.stream(address.split(","))
            .map(String::trim)
            .filter(each -> !each.isEmpty())
            .toList();
    (addresses.isEmpty() ? List.of(address) : addresses).forEach(Advice::check);
    Servers servers = new Servers(addresses, options::dial);
    try {
      OpenSessionResponse opened = open.apply(servers);
      if (opened.getFirstId() == 0) {
        throw GradwireException.mistake(
            Reason.REASON_PROTOCOL_VERSION,
            "",
            "the server gives this client no ids: it is too old");
      }
      Session session = new Session(servers, opened, options);
      session.start();
      return session;
    } catch (GradwireException failed) {
      servers.close();
      throw failed;
    }
  }

  /** Makes the first call. Gives up sooner than later calls, and tells what to do. */
  private static <R> R opened(
      Servers servers, ConnectOptions options, Function<AutogradServiceBlockingStub, R> call) {
    boolean impatient = options.patience.compareTo(OPENING) < 0;
    Retry retry = new Retry(servers, impatient ? options.patience : OPENING);
    while (true) {
      Servers.Link link = servers.link();
      try {
        return call.apply(link.blocking());
      } catch (StatusRuntimeException thrown) {
        Advice.Told told = Advice.of(thrown, link.address(), options);
        boolean last = told.last() && servers.isAlone();
        if (last || retry.pause(link, GradwireException.fromStatus(thrown)) != null) {
          throw GradwireException.of(told.failure());
        }
      }
    }
  }

  private void start() {
    keeper.offered(servers.link(), opened.getLocalStream());
    daemon("gradwire-stream").newThread(keeper).start();
    long period = Math.max(opened.getLeaseMs() / 3, 10);
    lease.scheduleAtFixedRate(this::renew, period, period, TimeUnit.MILLISECONDS);
  }

  private static ThreadFactory daemon(String name) {
    return run -> {
      Thread thread = new Thread(run, name);
      thread.setDaemon(true);
      return thread;
    };
  }

  /** The session's id. Keep it secret: it gives access to the session. */
  public String id() {
    return opened.getSessionId();
  }

  /** How often the stream was opened again after a broken connection. */
  public int reconnects() {
    return Math.max(0, writer.attempts() - 1);
  }

  /** The address of the server in use. */
  public String address() {
    return servers.link().address();
  }

  /** Whether the stream is a Unix socket. */
  boolean usesLocalStream() {
    return keeper.usesLocalStream();
  }

  /** The stub of the single calls, for what this library does not cover. */
  public AutogradServiceBlockingStub stub() {
    return servers.link().blocking();
  }

  Servers servers() {
    return servers;
  }

  boolean isRecording() {
    return writer == null;
  }

  String requestId() {
    return requestPrefix + "-" + requests.incrementAndGet();
  }

  /** Makes a single call, and the same call again while the connection fails. */
  private static <R> R retried(
      Servers servers, Duration patience, Function<AutogradServiceBlockingStub, R> call) {
    Retry retry = new Retry(servers, patience);
    while (true) {
      Servers.Link link = servers.link();
      try {
        return call.apply(link.blocking());
      } catch (StatusRuntimeException thrown) {
        Error failure = retry.pause(link, GradwireException.fromStatus(thrown));
        if (failure != null) {
          throw GradwireException.of(failure);
        }
      }
    }
  }

  private void renew() {
    Servers.Link link = servers.link();
    KeepAliveRequest request = KeepAliveRequest.newBuilder().setSessionId(id()).build();
    try {
      long deadline = Math.max(opened.getLeaseMs() / 3, 1000);
      link.blocking().withDeadlineAfter(deadline, TimeUnit.MILLISECONDS).keepAlive(request);
    } catch (StatusRuntimeException thrown) {
      Error failure = GradwireException.fromStatus(thrown);
      if (failure.getReason() == Reason.REASON_SESSION_MOVED) {
        servers.leave(link, failure.getMetadataOrDefault("endpoint", ""));
      } else if (failure.getReason() != Reason.REASON_UNSPECIFIED
          && !GradwireException.mayRetry(failure)) {
        writer.kill(failure);
        keeper.stop();
      }
    }
  }

  // Waiting

  /**
   * Sends all commands and waits for their answers. Throws the first refusal since the last wait.
   */
  public void await() {
    sink.await();
    throwFailure();
  }

  private void throwFailure() {
    Error failure = sink.takeFailure();
    if (failure != null) {
      throw GradwireException.of(failure);
    }
  }

  /** Sends a command and waits. An earlier refusal comes first. */
  Result ask(Command command) {
    Result result = sink.ask(command);
    throwFailure();
    if (result.hasError()) {
      throw GradwireException.of(sink.origin(result.getError()));
    }
    return result;
  }

  /** Stops the session's running and waiting commands. They fail with REASON_CANCELLED. */
  public void cancel() {
    CancelRequest request = CancelRequest.newBuilder().setSessionId(id()).build();
    retried(servers, patience, stub -> stub.cancel(request));
  }

  /**
   * Waits for all commands and ends the session; the server frees what it holds. Throws the first
   * refusal since the last wait or read.
   */
  @Override
  public void close() {
    if (isRecording() || !closed.compareAndSet(false, true)) {
      return;
    }
    try {
      await();
    } finally {
      disconnect();
      end();
      servers.close();
    }
  }

  /** Ends everything here without a word to the server, which ends the session with its lease. */
  void abandon() {
    closed.set(true);
    disconnect();
    servers.close();
  }

  private void disconnect() {
    lease.shutdownNow();
    writer.kill(
        Error.newBuilder()
            .setReason(Reason.REASON_SESSION_NOT_FOUND)
            .setMessage("the session is closed")
            .build());
    keeper.stop();
  }

  private void end() {
    CloseSessionRequest request = CloseSessionRequest.newBuilder().setSessionId(id()).build();
    try {
      stub().withDeadlineAfter(10, TimeUnit.SECONDS).closeSession(request);
    } catch (StatusRuntimeException gone) {
      // The server ends the session with its lease.
      System.getLogger(Session.class.getName()).log(System.Logger.Level.DEBUG, gone);
    }
  }

  // Modes

  GradMode gradMode() {
    return threads.get().mode;
  }

  /**
   * Begins a part in which this thread's ops record no graph, and leaves may be changed in place:
   * {@code try (var mode = session.noGrad()) { … }}.
   */
  public GradModeScope noGrad() {
    return new GradModeScope(threads.get(), GradMode.GRAD_MODE_DISABLED);
  }

  /** Begins a part with a graph, inside one without: torch.enable_grad. */
  public GradModeScope enableGrad() {
    return new GradModeScope(threads.get(), GradMode.GRAD_MODE_ENABLED);
  }

  /** Begins a part without a graph, whose results can never be part of one. */
  public GradModeScope inferenceMode() {
    return new GradModeScope(threads.get(), GradMode.GRAD_MODE_INFERENCE);
  }

  /** Begins a scope, whose end releases the tensors that this thread made in it. */
  public TensorScope scope() {
    OfThread thread = threads.get();
    thread.scope = new TensorScope(thread);
    return thread.scope;
  }

  /** Seeds the session's random generator, which draws PyTorch's numbers (torch.manual_seed). */
  public void manualSeed(long seed) {
    ManualSeedRequest.Builder request =
        ManualSeedRequest.newBuilder()
            .setSeed(seed)
            .setAlgorithm(RandomAlgorithm.RANDOM_ALGORITHM_MT19937);
    sink.send(Command.newBuilder().setManualSeed(request));
  }

  // Tensors

  /** Begins a call of an op by its name. */
  public Call call(String op) {
    return new Call(this, op);
  }

  /** Makes a leaf of zero dimensions and FLOAT32. */
  public Tensor scalar(float value) {
    return leaf(DType.FLOAT32, Source.of(new float[] {value}));
  }

  /** Makes a leaf of floats in row-major order. Without a shape it has one dimension. */
  public Tensor tensor(float[] values, long... shape) {
    return leaf(DType.FLOAT32, Source.of(values), shapeOf(shape, values.length));
  }

  /** Makes a leaf of doubles in row-major order. Without a shape it has one dimension. */
  public Tensor tensor(double[] values, long... shape) {
    return leaf(DType.FLOAT64, Source.of(values), shapeOf(shape, values.length));
  }

  /** Makes a leaf of longs in row-major order. Without a shape it has one dimension. */
  public Tensor tensor(long[] values, long... shape) {
    return leaf(DType.INT64, Source.of(values), shapeOf(shape, values.length));
  }

  /** Makes a leaf of ints in row-major order. Without a shape it has one dimension. */
  public Tensor tensor(int[] values, long... shape) {
    return leaf(DType.INT32, Source.of(values), shapeOf(shape, values.length));
  }

  /** Makes a leaf of bools in row-major order. Without a shape it has one dimension. */
  public Tensor tensor(boolean[] values, long... shape) {
    byte[] bytes = new byte[values.length];
    for (int i = 0; i < bytes.length; i++) {
      bytes[i] = (byte) (values[i] ? 1 : 0);
    }
    return fromBytes(DType.BOOL, bytes, shapeOf(shape, values.length));
  }

  private static long[] shapeOf(long[] shape, int length) {
    return shape.length == 0 ? new long[] {length} : shape;
  }

  /**
   * Makes a leaf of little-endian bytes in row-major order; without a shape it has zero dimensions.
   * Do not change the bytes afterwards. Large values travel in chunks, and then this waits until
   * the server has them.
   */
  public Tensor fromBytes(DType dtype, byte[] data, long... shape) {
    return leaf(dtype, Source.of(data), shape);
  }

  private Tensor leaf(DType dtype, Source source, long... shape) {
    long expected = dtype.size();
    for (long size : shape) {
      expected *= size;
    }
    if (expected != source.size()) {
      throw GradwireException.mistake(
          Reason.REASON_PAYLOAD_SIZE,
          "",
          "shape %s of %s has %d bytes, not %d",
          Arrays.toString(shape),
          dtype,
          expected,
          source.size());
    }
    List<Long> sizes = Arrays.stream(shape).boxed().toList();
    CreateRequest.Builder request = CreateRequest.newBuilder().setGradMode(gradMode());
    if (!isRecording() && source.size() > opened.getLimits().getMaxInlineBytes()) {
      request.setTransfer(
          new Bulk(this).upload(source).toBuilder().setDtype(dtype.proto).addAllShape(sizes));
    } else {
      request.setPayload(
          io.github.gradwire.v1.Payload.newBuilder()
              .setDtype(dtype.proto)
              .addAllShape(sizes)
              .setData(source.all()));
    }
    Tensor made = newTensor();
    sink.send(Command.newBuilder().setCreate(request.setId(made.id())));
    return made;
  }

  /** Checks that a tensor is of this session. */
  Tensor own(String op, Tensor tensor) {
    if (tensor.session() != this) {
      throw GradwireException.mistake(
          Reason.REASON_ARGUMENT_VALUE, op, "the tensor belongs to another session");
    }
    return tensor;
  }

  long newId() {
    return nextId.getAndIncrement();
  }

  Tensor newTensor() {
    return adopt(newId());
  }

  /** A tensor of an id that this session releases. */
  Tensor adopt(long id) {
    Tensor made = new Tensor(this, id);
    if (isRecording()) {
      return made;
    }
    made.cleanable = CLEANER.register(made, new Handle(sink, live, id));
    if (live.incrementAndGet() - base.get() > COLLECT_EVERY) {
      collect();
    }
    TensorScope scope = threads.get().scope;
    if (scope != null) {
      scope.add(made);
    }
    return made;
  }

  /** Has garbage collected: the heap may have room for many tensors that the server has not. */
  private void collect() {
    if (!collecting.compareAndSet(false, true)) {
      return;
    }
    Runnable run =
        () -> {
          System.gc();
          try {
            Thread.sleep(20); // the cleaner runs after the collection
          } catch (InterruptedException early) {
            Thread.currentThread().interrupt();
          }
          base.set(live.get());
          collecting.set(false);
        };
    daemon("gradwire-collect").newThread(run).start();
  }

  // Programs

  /**
   * Makes a program of what a function does, and registers it. The function gets a session that
   * records, stand-ins for the inputs, and placeholders for the numbers. It uses only tensors of
   * that session, reads none, and returns the outputs. Waits.
   *
   * @param numbers how many floating-point numbers each run gives, for example a learning rate
   */
  public Program trace(List<Input> inputs, int numbers, Program.Body body) {
    return Program.trace(this, inputs, numbers, body);
  }

  /** Loads a program file that Python's gradwire.export wrote, given its bytes. Waits. */
  public ProgramFile loadProgram(byte[] data) {
    return ProgramFile.load(this, data);
  }

  // Snapshots

  /**
   * Stores the session under a name: values, gradients, the graph and the random generator. Waits
   * for all commands. {@link Gradwire#restore} opens it, and returns the given tensors by their
   * names. The server needs --state-dir.
   *
   * @param live how long the server keeps it; zero takes the server's limit
   */
  public void save(String name, Map<String, Tensor> tensors, Duration live) {
    SaveSessionRequest.Builder request =
        SaveSessionRequest.newBuilder().setSessionId(id()).setName(name).setTtlMs(live.toMillis());
    tensors.forEach(
        (key, tensor) ->
            request.addTensors(
                NamedTensor.newBuilder().setName(key).setId(own("save", tensor).id())));
    await();
    retried(servers, patience, stub -> stub.saveSession(request.build()));
    Reference.reachabilityFence(tensors);
  }

  /** Deletes a snapshot of the caller's on the session's server. */
  public void deleteSnapshot(String name) {
    DeleteSnapshotRequest request = DeleteSnapshotRequest.newBuilder().setName(name).build();
    retried(servers, patience, stub -> stub.deleteSnapshot(request));
  }
}
