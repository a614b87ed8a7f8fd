package io.github.gradwire;

import io.github.gradwire.v1.Error;
import io.github.gradwire.v1.Reason;
import java.time.Duration;
import java.util.concurrent.ThreadLocalRandom;

/** Decides whether a failed call is tried again, where, and when. */
final class Retry {
  private static final long FIRST_PAUSE = 10; // milliseconds
  private static final long LONGEST_PAUSE = 1000;

  private final Servers servers;
  private final Duration patience;
  private long since = -1; // the first failure after the last progress, in nanoseconds
  private long pause = FIRST_PAUSE;

  Retry(Servers servers, Duration patience) {
    this.servers = servers;
    this.patience = patience;
  }

  /** Notes that the server has answered. */
  void progress() {
    since = -1;
    pause = FIRST_PAUSE;
  }

  /** The failure after which nothing is tried again. */
  static Error givenUp(Error failure, String why) {
    String told = why + ": " + failure.getMessage();
    return failure.toBuilder().setReason(Reason.REASON_UNAVAILABLE).setMessage(told).build();
  }

  /** Sleeps before the next try. Returns the failure if there should be none. */
  Error pause(Servers.Link link, Error failure) {
    long now = System.nanoTime();
    boolean repeated = since >= 0;
    if (!repeated) {
      since = now;
    }
    if (!GradwireException.mayRetry(failure)) {
      return failure;
    }
    if (now - since > patience.toNanos()) {
      return givenUp(failure, "no answer for %d s".formatted(patience.toSeconds()));
    }
    boolean moved = failure.getReason() == Reason.REASON_SESSION_MOVED;
    if (moved || (repeated && failure.getReason() != Reason.REASON_STREAM_TAKEN)) {
      servers.leave(link, moved ? failure.getMetadataOrDefault("endpoint", "") : "");
    }
    link.channel().resetConnectBackoff();
    try {
      Thread.sleep(pause / 2 + ThreadLocalRandom.current().nextLong(pause));
    } catch (InterruptedException interrupted) {
      Thread.currentThread().interrupt();
      return failure;
    }
    pause = Math.min(2 * pause, LONGEST_PAUSE);
    return null;
  }
}
