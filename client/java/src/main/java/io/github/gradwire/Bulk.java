package io.github.gradwire;

import com.google.protobuf.ByteString;
import com.google.protobuf.UnsafeByteOperations;
import io.github.gradwire.v1.DownloadRequest;
import io.github.gradwire.v1.DownloadResponse;
import io.github.gradwire.v1.Error;
import io.github.gradwire.v1.Reason;
import io.github.gradwire.v1.Transfer;
import io.github.gradwire.v1.UploadRequest;
import io.github.gradwire.v1.UploadResponse;
import io.github.gradwire.v1.UploadStart;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.stub.ClientCallStreamObserver;
import io.grpc.stub.ClientResponseObserver;
import java.nio.ByteBuffer;
import java.util.Iterator;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.function.Consumer;

/** Moves large values in chunks. After a broken call it goes on where that one broke. */
final class Bulk {
  private static final int DEFAULT_CHUNK = 256 << 10;

  /** To which chunks shrink while calls break before one has arrived. */
  private static final int LEAST_CHUNK = 4 << 10;

  private final Session session;

  Bulk(Session session) {
    this.session = session;
  }

  /** Sends values. After a broken call it asks how many bytes have arrived. */
  Transfer upload(Source source) {
    UploadStart start =
        UploadStart.newBuilder()
            .setSessionId(session.id())
            .setTotalBytes(source.size())
            .setRequestId(session.requestId())
            .build();
    UploadResponse state = UploadResponse.getDefaultInstance();
    Retry retry = new Retry(session.servers(), session.patience);
    int told = (int) session.opened.getLimits().getChunkBytes();
    int most = told > 0 ? told : DEFAULT_CHUNK;
    int chunk = most;
    for (boolean first = true; ; first = false) {
      Servers.Link link = session.servers().link();
      try {
        if (!first) {
          long before = state.getReceivedBytes();
          state = new Upload(link, start, source, source.size(), chunk).answer();
          if (state.getReceivedBytes() > before) {
            retry.progress();
            chunk = Math.min(2 * chunk, most);
          } else { // a chunk arrives as a whole or not at all
            chunk = Math.max(chunk / 2, Math.min(LEAST_CHUNK, most));
          }
        }
        long at = state.getReceivedBytes();
        if (at < source.size()) {
          UploadStart.Builder rest = start.toBuilder();
          rest.setTransferId(state.getTransferId()).setOffset(at);
          state = new Upload(link, rest.build(), source, at, chunk).answer();
        }
        if (state.getReceivedBytes() == source.size()) {
          return Transfer.newBuilder()
              .setTransferId(state.getTransferId())
              .setTotalBytes(source.size())
              .build();
        }
      } catch (CompletionException broken) {
        Error failure = retry.pause(link, GradwireException.fromStatus(broken.getCause()));
        if (failure != null) {
          throw GradwireException.of(failure);
        }
      }
    }
  }

  /** One call of Upload: sends the bytes from a place on, as fast as the transport takes them. */
  private final class Upload implements ClientResponseObserver<UploadRequest, UploadResponse> {
    private final CompletableFuture<UploadResponse> end = new CompletableFuture<>();
    private final Source source;
    private final UploadStart start;
    private final int chunk;
    private long at;
    private boolean begun;
    private boolean complete;
    private ClientCallStreamObserver<UploadRequest> requests;

    Upload(Servers.Link link, UploadStart start, Source source, long at, int chunk) {
      this.start = start;
      this.source = source;
      this.at = at;
      this.chunk = chunk;
      link.stub().upload(this);
    }

    UploadResponse answer() {
      return end.join();
    }

    @Override
    public void beforeStart(ClientCallStreamObserver<UploadRequest> stream) {
      requests = stream;
      stream.setOnReadyHandler(this::more);
    }

    private void more() {
      while (requests.isReady() && !complete) {
        if (!begun) {
          begun = true;
          requests.onNext(UploadRequest.newBuilder().setStart(start).build());
        } else if (at < source.size()) {
          int size = (int) Math.min(chunk, source.size() - at);
          requests.onNext(UploadRequest.newBuilder().setData(source.part(at, size)).build());
          at += size;
        } else {
          complete = true;
          requests.onCompleted();
        }
      }
    }

    @Override
    public void onNext(UploadResponse message) {
      end.complete(message);
    }

    @Override
    public void onError(Throwable thrown) {
      end.completeExceptionally(thrown);
    }

    @Override
    public void onCompleted() {
      end.completeExceptionally(new IllegalStateException("the upload ended without an answer"));
    }
  }

  /** Fetches values. */
  Payload download(Transfer transfer) {
    byte[] data = new byte[Math.toIntExact(transfer.getTotalBytes())];
    ByteBuffer left = ByteBuffer.wrap(data);
    download(transfer, 1, left::put);
    return Payload.of(transfer, UnsafeByteOperations.unsafeWrap(data));
  }

  /** Fetches values, and hands on little-endian bytes of whole elements of a width, in order. */
  void download(Transfer transfer, int width, Consumer<ByteBuffer> elements) {
    Collector collector = new Collector(width, elements);
    long at = 0;
    Retry retry = new Retry(session.servers(), session.patience);
    while (at < transfer.getTotalBytes()) {
      Servers.Link link = session.servers().link();
      DownloadRequest request =
          DownloadRequest.newBuilder()
              .setSessionId(session.id())
              .setTransferId(transfer.getTransferId())
              .setOffset(at)
              .build();
      try {
        Iterator<DownloadResponse> parts = link.blocking().download(request);
        while (parts.hasNext()) {
          DownloadResponse next = parts.next();
          check(next, at, transfer.getTotalBytes());
          ByteString part = next.getData();
          part.asReadOnlyByteBufferList().forEach(collector::take);
          at += part.size();
          retry.progress();
        }
        if (at < transfer.getTotalBytes()) { // tried again, like a broken call
          throw Status.UNAVAILABLE.withDescription("the transfer ended early").asRuntimeException();
        }
      } catch (StatusRuntimeException broken) {
        Error failure = retry.pause(link, GradwireException.fromStatus(broken));
        if (failure != null) {
          throw GradwireException.of(failure);
        }
      }
    }
  }

  /** Refuses a part that does not follow the bytes that came, or exceeds the transfer. */
  static void check(DownloadResponse part, long at, long total) {
    if (part.getOffset() != at || part.getData().size() > total - at) {
      throw GradwireException.mistake(
          Reason.REASON_INTERNAL, "", "the server sent other bytes than those of the transfer");
    }
  }
}
