package io.github.gradwire;

import io.github.gradwire.v1.Error;
import java.time.Duration;

/**
 * Keeps a stream open until the writer ends: after a break it opens another one. The stream uses a
 * Unix socket where the server has named one that this process can use, and gRPC elsewhere.
 */
final class StreamKeeper implements Runnable {
  private static final int MOST_REJECTED = 2;

  // Streams that break since the last answer to a batch, and times the patience; then no connection
  // seems to carry it.
  private static final int MOST_PATIENCES = 10;

  // A stream that lasts for this part of the patience has carried its batches: the server computes.
  private static final int PATIENCE_PARTS = 4;

  private final Servers servers;
  private final Writer writer;
  private final Duration patience;
  private final boolean localStreams;
  private volatile StreamCall current;
  private volatile boolean stopped;
  private Servers.Link localOf; // the link whose server named the socket
  private String local = ""; // the socket, if it can be used
  private int rejected; // local streams in a row to which the server has not answered
  private Writer.Unanswered broken; // at the first break since the last answer to a batch
  private long brokenSince;
  private int breaks; // since then

  StreamKeeper(Servers servers, Writer writer, ConnectOptions options) {
    this.servers = servers;
    this.writer = writer;
    this.patience = options.patience;
    this.localStreams = options.localStream;
  }

  /**
   * Notes the socket that a link's server has named. Returns whether a new stream would use it, and
   * none does.
   */
  synchronized boolean offered(Servers.Link link, String name) {
    String usable = localStreams && LocalStream.isUsable(name) ? name : "";
    boolean changed = !usable.isEmpty() && !(link == localOf && usable.equals(local));
    localOf = link;
    local = usable;
    if (changed) {
      rejected = 0;
    }
    return changed;
  }

  @Override
  public void run() {
    Retry retry = new Retry(servers, patience);
    while (!stopped && !writer.isDead()) {
      Servers.Link link = servers.link();
      StreamCall stream = opened(link);
      long began = System.nanoTime();
      Error ended = run(stream);
      if (stopped || writer.isDead()) {
        return;
      }
      Error failure = null;
      if (stream.progress()) {
        retry.progress();
        boolean again = GradwireException.mayRetry(ended);
        failure = again ? uncarried(ended, System.nanoTime() - began) : null;
      }
      if (failure == null) {
        failure = retry.pause(link, ended);
      }
      if (failure != null) {
        writer.kill(failure);
      }
    }
  }

  /**
   * Counts a stream that broke after its start was answered. Returns a failure if so many broke for
   * so long that no connection seems to carry the next batch. A server that answers a stream's
   * start only would otherwise be tried for ever. One batch may compute for longer than the
   * patience.
   */
  private Error uncarried(Error failure, long lasted) {
    boolean carried = lasted > patience.dividedBy(PATIENCE_PARTS).toNanos();
    Writer.Unanswered now = carried ? null : writer.unanswered();
    if (now == null || broken == null || now.acked() != broken.acked()) {
      broken = now;
      brokenSince = System.nanoTime();
      breaks = 0;
    }
    breaks++;
    Duration most = patience.multipliedBy(MOST_PATIENCES);
    boolean longEnough = System.nanoTime() - brokenSince > most.toNanos();
    if (now == null || breaks < MOST_PATIENCES || !longEnough) {
      return null;
    }
    return Retry.givenUp(
        failure,
        "%d connections broke in %d s before a batch of %d bytes was answered"
            .formatted(breaks, most.toSeconds(), now.size()));
  }

  private Error run(StreamCall stream) {
    try {
      writer.attach(stream);
      if (stopped) {
        stream.cancel();
      }
      return stream.end();
    } finally {
      writer.detach(stream);
      stream.cancel();
    }
  }

  private StreamCall opened(Servers.Link link) {
    // Without the lock: the thread that connects the socket also takes messages, which need it.
    String name = chosen(link);
    StreamCall made = name.isEmpty() ? null : LocalStream.open(this, writer, link, name);
    current = made != null ? made : GrpcStream.open(this, writer, link);
    return current;
  }

  /** The socket for the next stream; empty for gRPC. */
  private synchronized String chosen(Servers.Link link) {
    if (link != localOf || local.isEmpty() || rejected >= MOST_REJECTED) {
      rejected = 0;
      return "";
    }
    rejected++; // until the server answers
    return local;
  }

  boolean usesLocalStream() {
    return current instanceof LocalStream;
  }

  /** Notes that a stream had an answer. */
  synchronized void answered() {
    rejected = 0;
  }

  /** Ends the present stream and opens no other. */
  void stop() {
    stopped = true;
    StreamCall stream = current;
    if (stream != null) {
      stream.cancel();
    }
  }
}
