package io.github.gradwire;

import io.github.gradwire.v1.Error;
import io.github.gradwire.v1.Reason;
import io.github.gradwire.v1.StreamResponse;
import java.util.concurrent.CompletableFuture;

/** A stream, from its attachment to its end, by whatever carries its messages. */
abstract class StreamCall implements Writer.Wire {
  private final StreamKeeper keeper;
  private final Writer writer;
  private final Servers.Link link;
  private final CompletableFuture<Error> end = new CompletableFuture<>();
  private volatile boolean progress;

  StreamCall(StreamKeeper keeper, Writer writer, Servers.Link link) {
    this.keeper = keeper;
    this.writer = writer;
    this.link = link;
  }

  /** Ends the stream. Nothing is received after it. */
  abstract void cancel();

  /** Waits for the end, and says why it came. */
  final Error end() {
    return end.join();
  }

  final boolean isEnded() {
    return end.isDone();
  }

  /** Whether the server has answered. */
  final boolean progress() {
    return progress;
  }

  /** Takes a message of the server. */
  final void received(StreamResponse message) {
    if (!progress) {
      progress = true;
      keeper.answered();
    }
    // A server that was restarted, or that the session moved to, names its socket only here.
    if (message.hasAttached() && keeper.offered(link, message.getAttached().getLocalStream())) {
      ended("another stream replaces this one");
    } else {
      writer.received(this, message);
    }
  }

  final void ended(Error why) {
    end.complete(why);
  }

  final void ended(String why) {
    ended(Error.newBuilder().setReason(Reason.REASON_UNAVAILABLE).setMessage(why).build());
  }
}
