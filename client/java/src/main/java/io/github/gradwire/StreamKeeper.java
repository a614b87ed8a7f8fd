package io.github.gradwire;

import io.github.gradwire.v1.Error;
import io.github.gradwire.v1.Reason;
import io.github.gradwire.v1.StreamRequest;
import io.github.gradwire.v1.StreamResponse;
import io.grpc.stub.ClientCallStreamObserver;
import io.grpc.stub.ClientResponseObserver;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;

/** Keeps a stream open until the writer ends: after a break it opens another one. */
final class StreamKeeper implements Runnable {
  private final Servers servers;
  private final Writer writer;
  private final Duration patience;
  private volatile OneStream current;
  private volatile boolean stopped;

  StreamKeeper(Servers servers, Writer writer, Duration patience) {
    this.servers = servers;
    this.writer = writer;
    this.patience = patience;
  }

  @Override
  public void run() {
    Retry retry = new Retry(servers, patience);
    while (!stopped && !writer.isDead()) {
      Servers.Link link = servers.link();
      OneStream stream = new OneStream();
      Error ended = stream.run(link);
      if (stopped || writer.isDead()) {
        return;
      }
      if (stream.progress) {
        retry.progress();
      }
      Error failure = retry.pause(link, ended);
      if (failure != null) {
        writer.kill(failure);
      }
    }
  }

  /** Ends the present stream and opens no other. */
  void stop() {
    stopped = true;
    OneStream stream = current;
    if (stream != null) {
      stream.cancel();
    }
  }

  /** A stream, from its attachment to its end. */
  private final class OneStream
      implements Writer.Wire, ClientResponseObserver<StreamRequest, StreamResponse> {
    private final CompletableFuture<Error> end = new CompletableFuture<>();
    private ClientCallStreamObserver<StreamRequest> requests;
    volatile boolean progress;

    Error run(Servers.Link link) {
      current = this;
      try {
        link.stub().stream(this);
        writer.attach(this);
        if (stopped) {
          cancel();
        }
        return end.join();
      } finally {
        writer.detach(this);
        cancel();
      }
    }

    void cancel() {
      requests.cancel("the client has ended the stream", null);
    }

    @Override
    public void beforeStart(ClientCallStreamObserver<StreamRequest> stream) {
      requests = stream;
    }

    @Override
    public void send(StreamRequest message) {
      if (end.isDone()) {
        return;
      }
      try {
        requests.onNext(message);
      } catch (IllegalStateException over) { // the call was cancelled; onError tells why
        end.complete(GradwireException.fromStatus(over));
      }
    }

    @Override
    public void onNext(StreamResponse message) {
      progress = true;
      writer.received(this, message);
    }

    @Override
    public void onError(Throwable thrown) {
      end.complete(GradwireException.fromStatus(thrown));
    }

    @Override
    public void onCompleted() {
      end.complete(
          Error.newBuilder()
              .setReason(Reason.REASON_UNAVAILABLE)
              .setMessage("the server ended the stream")
              .build());
    }
  }
}
