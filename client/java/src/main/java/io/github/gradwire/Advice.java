package io.github.gradwire;

import io.github.gradwire.v1.Error;
import io.github.gradwire.v1.Reason;
import io.grpc.Status;
import java.io.IOException;
import java.net.ConnectException;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.UnknownHostException;
import java.security.GeneralSecurityException;
import java.security.cert.CertificateException;
import java.security.cert.X509Certificate;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLException;
import javax.net.ssl.SSLSocket;
import javax.net.ssl.TrustManager;
import javax.net.ssl.X509TrustManager;

/**
 * Says what to do about a server that cannot be reached, or that lets nobody in: sentences for the
 * error of the first call.
 */
final class Advice {
  private static final int PROBE_MILLIS = 700;
  private static final Pattern HOST_AND_PORT =
      Pattern.compile("(?<host>\\[[0-9A-Fa-f:.%\\w]+\\]|[^:\\[\\]/\\s]+):(?<port>[0-9]{1,5})");
  private static final Pattern SCHEMES =
      Pattern.compile("(unix|unix-abstract|vsock|dns|ipv4|ipv6|xds):.*");

  private static final String NO_SERVER =
      "No server listens there: start `gradwire serve`, or check the host and the port.";
  private static final String NO_HOST =
      "The host's name cannot be resolved: check its spelling, or give its IP address.";
  private static final String SPEAKS_TLS =
      "The server seems to use TLS: pass the PEM file of the authority that signed its certificate"
          + " to tls(Path), or call tls() if it is a public authority.";
  private static final String NO_TLS = "The server seems not to use TLS: remove tls().";
  private static final String DISTRUSTED =
      "The server's certificate is not trusted: pass the PEM file of the authority that signed it"
          + " to tls(Path), and connect to a name that the certificate contains.";
  private static final String WANTS_CERTIFICATE =
      "The server requires a client's certificate: pass credentials() with one.";
  private static final String NO_TOKEN =
      "No token was given: call token(). `gradwire token NAME` makes one.";
  private static final String UNKNOWN_TOKEN =
      "The token of token() is unknown to this server, or has expired.";

  private Advice() {}

  /** A failure with advice, and whether another try would fail in the same way. */
  record Told(Error failure, boolean last) {}

  /** Throws for what cannot be an address. gRPC would take port 80 or 443 where there is none. */
  static void check(String address) {
    Matcher found = HOST_AND_PORT.matcher(address);
    int port = found.matches() ? Integer.parseInt(found.group("port")) : 0;
    if (!SCHEMES.matcher(address).matches() && (port < 1 || port > 65_535)) {
      throw GradwireException.mistake(
          Reason.REASON_ARGUMENT_VALUE,
          "",
          "the address \"%s\" has no valid port: give HOST:PORT, as localhost:50051",
          address);
    }
  }

  /** What the first call to a server threw, as a failure with advice. */
  static Told of(Throwable thrown, String address, ConnectOptions options) {
    Error failure = GradwireException.fromStatus(thrown);
    if (failure.getReason() == Reason.REASON_UNAUTHENTICATED) {
      String advice = options.hasToken() ? UNKNOWN_TOKEN : NO_TOKEN;
      return new Told(withAdvice(failure, failure.getMessage(), advice), true);
    }
    if (failure.getReason() != Reason.REASON_UNSPECIFIED
        || failure.getCode() != Status.Code.UNAVAILABLE.value()) {
      return new Told(failure, false);
    }
    Throwable cause = cause(thrown);
    String message = "no connection to %s: %s".formatted(address, cause.getMessage());
    boolean last = true;
    String advice = "";
    if (has(thrown, UnknownHostException.class)) {
      advice = NO_HOST;
      last = false;
    } else if (has(thrown, ConnectException.class)) {
      advice = NO_SERVER;
      last = false;
    } else if (has(thrown, CertificateException.class)) {
      advice = DISTRUSTED;
    } else if (has(thrown, SSLException.class)) {
      // Without a certificate of the client the handshake ends with an alert.
      boolean alert = String.valueOf(cause.getMessage()).contains("alert");
      advice = alert ? WANTS_CERTIFICATE : NO_TLS;
    } else if (!options.encrypts()
        && String.valueOf(cause.getMessage()).contains("Network closed")
        && speaksTls(address)) {
      advice = SPEAKS_TLS;
    } else {
      last = false;
    }
    return new Told(withAdvice(failure, message, advice), last);
  }

  private static Error withAdvice(Error failure, String message, String advice) {
    String told = advice.isEmpty() ? message : message + "\n  " + advice;
    return failure.toBuilder().setMessage(told).build();
  }

  private static Throwable cause(Throwable thrown) {
    Throwable each = thrown;
    while (each.getCause() != null && each.getCause() != each) {
      each = each.getCause();
    }
    return each;
  }

  private static boolean has(Throwable thrown, Class<? extends Throwable> kind) {
    for (Throwable each = thrown; each != null; each = each.getCause()) {
      if (kind.isInstance(each)) {
        return true;
      }
    }
    return false;
  }

  /** Whether the port answers a TLS handshake: a probe that sends no data and trusts no answer. */
  private static boolean speaksTls(String address) {
    Matcher found = HOST_AND_PORT.matcher(address);
    if (!found.matches()) {
      return false;
    }
    String host = found.group("host").replaceAll("[\\[\\]]", "");
    int port = Integer.parseInt(found.group("port"));
    try (Socket plain = new Socket()) {
      plain.connect(new InetSocketAddress(host, port), PROBE_MILLIS);
      plain.setSoTimeout(PROBE_MILLIS);
      SSLContext context = SSLContext.getInstance("TLS");
      context.init(null, new TrustManager[] {new Anyone()}, null);
      try (SSLSocket socket =
          (SSLSocket) context.getSocketFactory().createSocket(plain, host, port, true)) {
        var parameters = socket.getSSLParameters();
        parameters.setApplicationProtocols(new String[] {"h2"});
        socket.setSSLParameters(parameters);
        socket.startHandshake();
        return true;
      }
    } catch (SSLException answered) {
      return String.valueOf(answered.getMessage()).contains("alert");
    } catch (IOException | GeneralSecurityException none) {
      return false;
    }
  }

  /** Trusts every certificate, for the probe alone. */
  private static final class Anyone implements X509TrustManager {
    @Override
    public void checkClientTrusted(X509Certificate[] chain, String type) {}

    @Override
    public void checkServerTrusted(X509Certificate[] chain, String type) {}

    @Override
    public X509Certificate[] getAcceptedIssuers() {
      return new X509Certificate[0];
    }
  }
}
