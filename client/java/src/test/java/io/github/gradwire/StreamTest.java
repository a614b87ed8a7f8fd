package io.github.gradwire;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.gradwire.v1.AutogradServiceGrpc;
import io.github.gradwire.v1.CloseSessionRequest;
import io.github.gradwire.v1.CloseSessionResponse;
import io.github.gradwire.v1.Command;
import io.github.gradwire.v1.Error;
import io.github.gradwire.v1.KeepAliveRequest;
import io.github.gradwire.v1.KeepAliveResponse;
import io.github.gradwire.v1.Limits;
import io.github.gradwire.v1.OpenSessionRequest;
import io.github.gradwire.v1.OpenSessionResponse;
import io.github.gradwire.v1.Reason;
import io.github.gradwire.v1.RunResponse;
import io.github.gradwire.v1.StreamAttached;
import io.github.gradwire.v1.StreamRequest;
import io.github.gradwire.v1.StreamResponse;
import io.grpc.Grpc;
import io.grpc.InsecureServerCredentials;
import io.grpc.Metadata;
import io.grpc.Server;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.stub.StreamObserver;
import java.io.IOException;
import java.nio.ByteOrder;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** A scripted server does what a live one does not do on demand. */
@Timeout(30)
class StreamTest {
  private final List<Server> servers = new ArrayList<>();
  private Session session;

  /** Answers a message of a stream: the first one attaches, the others are batches. */
  private interface Script {
    void received(int attempt, StreamRequest message, StreamObserver<StreamResponse> answers);
  }

  private static final class Scripted extends AutogradServiceGrpc.AutogradServiceImplBase {
    final Script script;
    final AtomicInteger alive = new AtomicInteger();
    final AtomicInteger failures = new AtomicInteger(); // of OpenSession, still to come

    Scripted(Script script) {
      this.script = script;
    }

    @Override
    public void openSession(
        OpenSessionRequest request, StreamObserver<OpenSessionResponse> answer) {
      if (failures.getAndDecrement() > 0) {
        answer.onError(Status.UNAVAILABLE.withDescription("not yet").asException());
        return;
      }
      Limits.Builder limits =
          Limits.newBuilder()
              .setMaxMessageBytes(1 << 20)
              .setMaxInlineBytes(1 << 16)
              .setMaxBatchCommands(1024)
              .setMaxPrepared(4);
      answer.onNext(
          OpenSessionResponse.newBuilder()
              .setSessionId("s")
              .setWriter(1)
              .setEpoch(1)
              .setLeaseMs(60)
              .setFirstId(1)
              .setLastId(1L << 40)
              .setLimits(limits)
              .build());
      answer.onCompleted();
    }

    @Override
    public void keepAlive(KeepAliveRequest request, StreamObserver<KeepAliveResponse> answer) {
      alive.incrementAndGet();
      answer.onNext(KeepAliveResponse.newBuilder().setLeaseMs(60).build());
      answer.onCompleted();
    }

    @Override
    public void closeSession(
        CloseSessionRequest request, StreamObserver<CloseSessionResponse> end) {
      end.onNext(CloseSessionResponse.getDefaultInstance());
      end.onCompleted();
    }

    @Override
    public StreamObserver<StreamRequest> stream(StreamObserver<StreamResponse> answers) {
      return new StreamObserver<>() {
        private int attempt;

        @Override
        public void onNext(StreamRequest message) {
          if (message.hasAttach()) {
            attempt = message.getAttach().getAttempt();
          }
          if (message.hasAttach() || message.hasBatch()) { // an acknowledgement has no answer
            script.received(attempt, message, answers);
          }
        }

        @Override
        public void onError(Throwable ended) {}

        @Override
        public void onCompleted() {}
      };
    }
  }

  private String serve(Scripted scripted) throws IOException {
    Server server =
        Grpc.newServerBuilderForPort(0, InsecureServerCredentials.create())
            .addService(scripted)
            .build()
            .start();
    servers.add(server);
    return "127.0.0.1:" + server.getPort();
  }

  private Session open(Script script) throws IOException {
    session = Gradwire.connect(serve(new Scripted(script)));
    return session;
  }

  @AfterEach
  void end() {
    if (session != null) {
      session.abandon();
    }
    servers.forEach(Server::shutdownNow);
  }

  private static StreamResponse attached(long credit) {
    StreamAttached.Builder told = StreamAttached.newBuilder().setEpoch(1);
    return StreamResponse.newBuilder().setAttached(told).setCreditBytes(credit).build();
  }

  private static StreamResponse answer(long credit) {
    return StreamResponse.newBuilder()
        .setBatch(RunResponse.getDefaultInstance())
        .setCreditBytes(credit)
        .build();
  }

  /** Ends a call as the server does. */
  private static StatusRuntimeException refusal(Error.Builder error, Status status) {
    Metadata trailers = new Metadata();
    trailers.put(
        Metadata.Key.of("gradwire-error-bin", Metadata.BINARY_BYTE_MARSHALLER),
        error.setMessage("scripted").build().toByteArray());
    return status.asRuntimeException(trailers);
  }

  private void addOnes(int count) {
    Tensor sum = session.scalar(1);
    for (int i = 0; i < count; i++) {
      sum.addInPlace(1.0);
    }
  }

  @Test
  void creditAndBatchesUnderWayAreBounded() throws Exception {
    long credit = 40_000; // suffices for the largest batch
    LinkedBlockingQueue<Integer> received = new LinkedBlockingQueue<>();
    AtomicLong most = new AtomicLong();
    AtomicInteger batches = new AtomicInteger();
    AtomicInteger streams = new AtomicInteger();
    open(
        (attempt, message, answers) -> {
          if (message.hasAttach()) {
            answers.onNext(attached(credit));
            if (streams.getAndIncrement() == 0) {
              answerInTurns(received, answers, most, batches).start();
            }
          } else {
            received.add(message.getBatch().getSerializedSize());
          }
        });
    for (int i = 0; i < 100; i++) {
      addOnes(100);
    }
    session.await();
    assertTrue(most.get() <= credit && most.get() >= credit / 4, most + " bytes under way");
    assertTrue(batches.get() <= Writer.MOST_SENT, batches + " batches under way");
  }

  /** Lets batches come, as many as the client dares to send, and then answers them. */
  private static Thread answerInTurns(
      LinkedBlockingQueue<Integer> received,
      StreamObserver<StreamResponse> answers,
      AtomicLong most,
      AtomicInteger batches) {
    Runnable run =
        () -> {
          try {
            while (true) {
              List<Integer> held = new ArrayList<>(List.of(received.take()));
              Thread.sleep(2);
              received.drainTo(held);
              long sum = held.stream().mapToLong(Integer::longValue).sum();
              most.accumulateAndGet(sum, Math::max);
              batches.accumulateAndGet(held.size(), Math::max);
              held.forEach(each -> answers.onNext(answer(each)));
            }
          } catch (InterruptedException ended) {
            Thread.currentThread().interrupt();
          }
        };
    Thread thread = new Thread(run);
    thread.setDaemon(true);
    return thread;
  }

  @Test
  void unansweredBatchesAreSentAgainUnchanged() throws Exception {
    List<Integer> attempts = new CopyOnWriteArrayList<>();
    List<StreamRequest> batches = new CopyOnWriteArrayList<>();
    open(
        (attempt, message, answers) -> {
          if (message.hasAttach()) {
            attempts.add(attempt);
            answers.onNext(attached(1 << 20));
            return;
          }
          batches.add(message);
          switch (batches.size()) {
            case 1 -> answers.onError(Status.UNAVAILABLE.withDescription("cut").asException());
            case 2 ->
                answers.onError(
                    refusal(
                        Error.newBuilder().setReason(Reason.REASON_STREAM_TAKEN), Status.ABORTED));
            default -> answers.onNext(answer(0));
          }
        });
    addOnes(10);
    session.await();
    assertEquals(3, batches.size());
    assertEquals(batches.get(0), batches.get(2));
    assertEquals(List.of(1, 2, 3), attempts);
    assertEquals(2, session.reconnects());
  }

  /**
   * While one thread waits for room after a Prepare, another prepares an op. Each calls its own.
   */
  @Test
  void threadsPrepareOps() throws Exception {
    List<StreamRequest> batches = new CopyOnWriteArrayList<>();
    List<StreamObserver<StreamResponse>> unanswered = new ArrayList<>();
    AtomicBoolean held = new AtomicBoolean(true);
    open(
        (attempt, message, answers) -> {
          synchronized (unanswered) {
            if (message.hasAttach()) {
              answers.onNext(attached(1 << 20));
              return;
            }
            batches.add(message);
            if (held.get()) {
              unanswered.add(answers);
            } else {
              answers.onNext(answer(0));
            }
          }
        });
    Tensor tensor = session.scalar(1);
    Runnable sum = () -> session.call("add_").tensor("", tensor).real("", 1).inPlace();
    Runnable product = () -> session.call("mul_").tensor("", tensor).real("", 1).inPlace();
    Runnable difference = () -> session.call("sub_").tensor("", tensor).real("", 1).inPlace();
    product.run();
    difference.run();
    // With the tensor and these two: 8 batches of 64 are under way, and one command fits in the
    // next.
    for (int i = 3; i < 8 * 64 + 1024 - 2; i++) { // and a Prepare
      sum.run();
    }
    Thread one = waiting(product);
    Thread other = waiting(difference);
    synchronized (unanswered) {
      held.set(false);
      unanswered.forEach(each -> each.onNext(answer(0)));
    }
    one.join(20_000);
    other.join(20_000);
    session.await();
    List<Long> called = new ArrayList<>();
    for (StreamRequest each : batches) {
      each.getBatch().getCommandsList().stream()
          .filter(Command::hasCalls)
          .map(command -> command.getCalls().getWords().asReadOnlyByteBuffer())
          .map(words -> words.order(ByteOrder.LITTLE_ENDIAN))
          .forEach(
              words -> {
                for (int at = 0; at < words.remaining(); at += 24) { // number, tensor, float
                  called.add(words.getLong(at));
                }
              });
    }
    assertEquals(1, called.stream().filter(number -> number == 1).count());
    assertEquals(1, called.stream().filter(number -> number == 2).count());
  }

  /** Starts a thread, and returns when it waits. */
  private static Thread waiting(Runnable task) throws InterruptedException {
    Thread made = new Thread(task);
    made.start();
    for (int i = 0; made.getState() != Thread.State.WAITING; i++) {
      assertTrue(i < 20_000, "the thread does not wait");
      Thread.sleep(1);
    }
    return made;
  }

  @Test
  void forgottenResultsEndTheSession() throws Exception {
    open(
        (attempt, message, answers) -> {
          if (message.hasAttach()) {
            answers.onNext(attached(1 << 20));
          } else {
            answers.onError(
                refusal(
                    Error.newBuilder().setReason(Reason.REASON_RESULT_FORGOTTEN),
                    Status.DATA_LOSS));
          }
        });
    Tensor tensor = session.scalar(1);
    for (int i = 0; i < 2; i++) {
      var told = assertThrows(GradwireException.SessionEnded.class, tensor::floats);
      assertEquals(Reason.REASON_RESULT_FORGOTTEN, told.reason());
    }
  }

  @Test
  void patienceEnds() throws Exception {
    Scripted never =
        new Scripted(
            (attempt, message, answers) ->
                answers.onError(Status.UNAVAILABLE.withDescription("never").asException()));
    session = Gradwire.connect(serve(never), options -> options.patience(Duration.ofMillis(50)));
    addOnes(1);
    var told = assertThrows(GradwireException.Connection.class, session::await);
    assertTrue(told.getMessage().contains("never"), told.getMessage());
  }

  /** A stream that lasted has carried its batches. */
  @Test
  void aLongComputationOutlastsBrokenStreams() throws Exception {
    Duration patience = Duration.ofMillis(300);
    StatusRuntimeException broken =
        Status.UNAVAILABLE.withDescription("scripted").asRuntimeException();
    Scripted script =
        new Scripted(
            (attempt, message, answers) -> {
              if (attempt == 10) { // an outage
                answers.onError(broken);
              } else if (message.hasAttach()) {
                answers.onNext(attached(1 << 20));
              } else if (attempt > 10) {
                answers.onNext(answer(1 << 20));
              } else {
                sleep(attempt == 9 ? patience.multipliedBy(11) : Duration.ZERO);
                answers.onError(broken);
              }
            });
    session = Gradwire.connect(serve(script), options -> options.patience(patience));
    addOnes(1);
    session.await();
  }

  private static void sleep(Duration time) {
    try {
      Thread.sleep(time.toMillis());
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt(); // the server ends
    }
  }

  @Test
  void joinedAnswersAnswerSeveralBatches() throws Exception {
    AtomicInteger received = new AtomicInteger();
    open(
        (attempt, message, answers) -> {
          if (message.hasAttach()) {
            answers.onNext(attached(1 << 20));
          } else if (received.incrementAndGet() == 3) {
            answers.onNext(answer(0).toBuilder().setBatches(3).build());
          }
        });
    addOnes(2 * Writer.SEND_AT);
    session.await();
    assertEquals(3, received.get());
  }

  @Test
  void theLeaseIsRenewedAndOpeningIsTriedAgain() throws Exception {
    Scripted scripted = new Scripted((attempt, message, answers) -> {});
    scripted.failures.set(2);
    session = Gradwire.connect(serve(scripted));
    while (scripted.alive.get() < 3) {
      Thread.sleep(5);
    }
    assertTrue(scripted.failures.get() < 0);
  }

  @Test
  void aMovedSessionContinuesAtTheOtherServer() throws Exception {
    List<StreamRequest> batches = new CopyOnWriteArrayList<>();
    String second =
        serve(
            new Scripted(
                (attempt, message, answers) -> {
                  if (message.hasAttach()) {
                    answers.onNext(attached(1 << 20));
                  } else {
                    batches.add(message);
                    answers.onNext(answer(0));
                  }
                }));
    open(
        (attempt, message, answers) -> {
          if (message.hasAttach()) {
            answers.onNext(attached(1 << 20));
          } else {
            batches.add(message);
            Error.Builder moved =
                Error.newBuilder()
                    .setReason(Reason.REASON_SESSION_MOVED)
                    .putMetadata("endpoint", second);
            answers.onError(refusal(moved, Status.UNAVAILABLE));
          }
        });
    addOnes(3);
    session.await();
    assertEquals(second, session.address());
    assertEquals(batches.get(0), batches.get(1));
  }

  @Test
  void theFirstOfSeveralServersThatAnswersIsUsed() throws Exception {
    Scripted scripted = new Scripted((attempt, message, answers) -> {});
    String live = serve(scripted);
    session = Gradwire.connect("127.0.0.1:1, " + live);
    assertEquals(live, session.address());
  }

  @Test
  void anInterruptEndsAWait() throws Exception {
    open((attempt, message, answers) -> answers.onNext(attached(1 << 20)));
    Tensor tensor = session.scalar(1);
    Thread.currentThread().interrupt();
    assertThrows(GradwireException.Cancelled.class, tensor::read);
    assertTrue(Thread.interrupted(), "the mark of the interrupt stays");
  }
}
