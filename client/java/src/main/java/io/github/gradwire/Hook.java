package io.github.gradwire;

import io.github.gradwire.v1.Command;
import io.github.gradwire.v1.RemoveHookRequest;
import java.util.List;

/** A registered hook. */
public final class Hook {
  private final Session session;
  private final long number;

  Hook(Session session, long number) {
    this.session = session;
    this.number = number;
  }

  /** Removes the hook. */
  public void remove() {
    session.hooks.drop(List.of(number));
    RemoveHookRequest.Builder request = RemoveHookRequest.newBuilder().setHook(number);
    session.sink.send(Command.newBuilder().setRemoveHook(request));
  }
}
