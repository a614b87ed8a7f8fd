package io.github.gradwire;

import java.util.function.Consumer;

/**
 * Computes gradients on a gradwire server.
 *
 * <pre>{@code
 * try (Session session = Gradwire.connect("127.0.0.1:50051")) {
 *   Tensor a = session.tensor(new float[] {1, 2, 3}).requiresGrad(true);
 *   a.mul(a).sum().backward();
 *   float[] gradient = a.grad().floats(); // 2 4 6
 * }
 * }</pre>
 */
public final class Gradwire {
  /** The version of this library. */
  public static final String VERSION = "0.1.0";

  private Gradwire() {}

  /**
   * Opens a session on a server, "host:port". Several servers of a cluster are given with commas
   * between them: the first that answers is used.
   */
  public static Session connect(String address) {
    return connect(address, options -> {});
  }

  /** Does {@link #connect(String)} with options: {@code o -> o.tls().token("…")}. */
  public static Session connect(String address, Consumer<ConnectOptions> options) {
    ConnectOptions given = new ConnectOptions();
    options.accept(given);
    return Session.open(address, given);
  }

  /**
   * Opens a session from a snapshot that {@link Session#save} made. The address is that of {@link
   * #connect(String)}.
   */
  public static Restored restore(String address, String name) {
    return restore(address, name, options -> {});
  }

  /** Does {@link #restore(String, String)} with options. */
  public static Restored restore(String address, String name, Consumer<ConnectOptions> options) {
    ConnectOptions given = new ConnectOptions();
    options.accept(given);
    return Session.restore(address, name, given);
  }
}
