package io.github.gradwire;

import io.github.gradwire.v1.StreamRequest;
import io.github.gradwire.v1.StreamResponse;
import io.grpc.stub.ClientCallStreamObserver;
import io.grpc.stub.ClientResponseObserver;

/** A stream over gRPC. */
final class GrpcStream extends StreamCall {
  private ClientCallStreamObserver<StreamRequest> requests;

  private GrpcStream(StreamKeeper keeper, Writer writer, Servers.Link link) {
    super(keeper, writer, link);
  }

  static GrpcStream open(StreamKeeper keeper, Writer writer, Servers.Link link) {
    GrpcStream made = new GrpcStream(keeper, writer, link);
    link.stub().stream(made.new Answers());
    return made;
  }

  @Override
  public void send(StreamRequest message) {
    if (isEnded()) {
      return;
    }
    try {
      requests.onNext(message);
    } catch (IllegalStateException over) { // the call was cancelled; onError tells why
      ended(GradwireException.fromStatus(over));
    }
  }

  @Override
  void cancel() {
    requests.cancel("the client has ended the stream", null);
  }

  private final class Answers implements ClientResponseObserver<StreamRequest, StreamResponse> {
    @Override
    public void beforeStart(ClientCallStreamObserver<StreamRequest> stream) {
      requests = stream;
    }

    @Override
    public void onNext(StreamResponse message) {
      received(message);
    }

    @Override
    public void onError(Throwable thrown) {
      ended(GradwireException.fromStatus(thrown));
    }

    @Override
    public void onCompleted() {
      ended("the server ended the stream");
    }
  }
}
