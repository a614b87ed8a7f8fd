package io.github.gradwire;

import io.github.gradwire.v1.Reason;
import io.grpc.ChannelCredentials;
import io.grpc.ClientInterceptor;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.ManagedChannelBuilder;
import io.grpc.Metadata;
import io.grpc.TlsChannelCredentials;
import io.grpc.stub.MetadataUtils;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.function.Consumer;
import java.util.regex.Pattern;

/** What {@link Gradwire#connect} can do without. */
public final class ConnectOptions {
  private static final Metadata.Key<String> AUTHORIZATION =
      Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER);

  private static final Pattern TOKEN = Pattern.compile("[!-~]{1,4096}");

  private ChannelCredentials credentials = InsecureChannelCredentials.create();
  private String token = "";
  private Consumer<ManagedChannelBuilder<?>> channel = builder -> {};
  boolean localStream = true;
  Duration lease = Duration.ZERO;
  String deviceType = "";
  Duration patience = Duration.ofSeconds(120);
  String clientName = "gradwire-java/" + Gradwire.VERSION;

  ConnectOptions() {}

  /** Encrypts the connection, and trusts the authorities that this Java trusts. */
  public ConnectOptions tls() {
    return credentials(TlsChannelCredentials.create());
  }

  /** Encrypts the connection, and trusts the authorities of a PEM file. */
  public ConnectOptions tls(Path authorities) {
    try {
      return credentials(
          TlsChannelCredentials.newBuilder().trustManager(authorities.toFile()).build());
    } catch (IOException unreadable) {
      throw new UncheckedIOException(unreadable);
    }
  }

  /** Uses credentials of gRPC, for example with a certificate of the client. */
  public ConnectOptions credentials(ChannelCredentials given) {
    credentials = given;
    return this;
  }

  /** Authenticates every call with "authorization: Bearer TOKEN". */
  public ConnectOptions token(String given) {
    if (!TOKEN.matcher(given).matches()) { // gRPC would drop it with a warning that shows it
      throw GradwireException.mistake(
          Reason.REASON_ARGUMENT_VALUE,
          "",
          "a token is 1 to 4096 visible ASCII characters; this one is something else");
    }
    token = given;
    return this;
  }

  /**
   * Asks for the type of a device that the session needs, such as "cuda". A cluster opens it at a
   * server that has one. If no server has, the error's reason is DEVICE_UNAVAILABLE.
   */
  public ConnectOptions deviceType(String given) {
    deviceType = given;
    return this;
  }

  /** Asks for a lease: how long the session lives without traffic. The session renews it. */
  public ConnectOptions lease(Duration given) {
    lease = given;
    return this;
  }

  /**
   * Sets how long a broken connection is tried again. The default is 120 seconds. A server that
   * cannot be reached at first is tried for 5 seconds at most.
   */
  public ConnectOptions patience(Duration given) {
    patience = given;
    return this;
  }

  /**
   * Sets whether the stream may use a Unix socket to a server of the same machine and user, which
   * is faster. The default is true. GRADWIRE_LOCAL_STREAM=0 in the environment forbids it, too.
   */
  public ConnectOptions localStream(boolean given) {
    localStream = given;
    return this;
  }

  /** Sets the name that the server's log shows. */
  public ConnectOptions clientName(String given) {
    clientName = given;
    return this;
  }

  /** Changes the channels of gRPC, for example with an interceptor. */
  public ConnectOptions channel(Consumer<ManagedChannelBuilder<?>> given) {
    channel = given;
    return this;
  }

  boolean hasToken() {
    return !token.isEmpty();
  }

  boolean encrypts() {
    return !(credentials instanceof InsecureChannelCredentials);
  }

  ManagedChannel dial(String address) {
    ManagedChannelBuilder<?> builder = Grpc.newChannelBuilder(address, credentials);
    // Callbacks only hand results over, so no thread of a pool is needed.
    builder.directExecutor().maxInboundMessageSize(Integer.MAX_VALUE);
    if (!token.isEmpty()) {
      Metadata headers = new Metadata();
      headers.put(AUTHORIZATION, "Bearer " + token);
      ClientInterceptor interceptor = MetadataUtils.newAttachHeadersInterceptor(headers);
      builder.intercept(interceptor);
    }
    channel.accept(builder);
    return builder.build();
  }
}
