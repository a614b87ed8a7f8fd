package io.github.gradwire;

import com.google.protobuf.ByteString;
import com.google.protobuf.UnsafeByteOperations;
import io.github.gradwire.v1.DownloadRequest;
import io.github.gradwire.v1.DownloadResponse;
import io.github.gradwire.v1.Error;
import io.github.gradwire.v1.Transfer;
import io.github.gradwire.v1.UploadRequest;
import io.github.gradwire.v1.UploadResponse;
import io.github.gradwire.v1.UploadStart;
import io.grpc.StatusRuntimeException;
import io.grpc.stub.ClientCallStreamObserver;
import io.grpc.stub.ClientResponseObserver;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;

/** Moves large values in chunks. After a broken call it goes on where that one broke. */
final class Bulk {
  private static final int DEFAULT_CHUNK = 256 << 10;

  private final Session session;

  Bulk(Session session) {
    this.session = session;
  }

  /** Sends values. Before each try it asks how many bytes have arrived. */
  Transfer upload(byte[] data) {
    UploadStart start =
        UploadStart.newBuilder()
            .setSessionId(session.id())
            .setTotalBytes(data.length)
            .setRequestId(session.requestId())
            .build();
    Retry retry = new Retry(session.servers(), session.patience);
    while (true) {
      Servers.Link link = session.servers().link();
      try {
        UploadResponse state = new Upload(link, start, data, data.length).answer();
        int at = (int) state.getReceivedBytes();
        if (at < data.length) {
          UploadStart.Builder again = start.toBuilder();
          again.setTransferId(state.getTransferId()).setOffset(at);
          state = new Upload(link, again.build(), data, at).answer();
        }
        if (state.getReceivedBytes() == data.length) {
          return Transfer.newBuilder()
              .setTransferId(state.getTransferId())
              .setTotalBytes(data.length)
              .build();
        }
        if (state.getReceivedBytes() > at) {
          retry.progress();
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
    private final byte[] data;
    private final UploadStart start;
    private final int chunk;
    private int at;
    private boolean begun;
    private boolean complete;
    private ClientCallStreamObserver<UploadRequest> requests;

    Upload(Servers.Link link, UploadStart start, byte[] data, int at) {
      this.start = start;
      this.data = data;
      this.at = at;
      int told = (int) session.opened.getLimits().getChunkBytes();
      this.chunk = told > 0 ? told : DEFAULT_CHUNK;
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
        } else if (at < data.length) {
          int size = Math.min(chunk, data.length - at);
          ByteString part = UnsafeByteOperations.unsafeWrap(data, at, size);
          requests.onNext(UploadRequest.newBuilder().setData(part).build());
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
    // The parts stay as they came: the values are converted from them, without another copy.
    List<ByteString> received = new ArrayList<>();
    int total = Math.toIntExact(transfer.getTotalBytes());
    int at = 0;
    Retry retry = new Retry(session.servers(), session.patience);
    while (at < total) {
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
          DownloadResponse part = parts.next();
          received.add(part.getData());
          at += part.getData().size();
          retry.progress();
        }
      } catch (StatusRuntimeException broken) {
        Error failure = retry.pause(link, GradwireException.fromStatus(broken));
        if (failure != null) {
          throw GradwireException.of(failure);
        }
      }
    }
    return Payload.of(transfer, ByteString.copyFrom(received));
  }
}
