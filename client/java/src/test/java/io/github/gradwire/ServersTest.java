package io.github.gradwire;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.gradwire.v1.Reason;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.function.Consumer;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** How a session finds its server: TLS, tokens and several addresses. Mistakes are told soon. */
@Timeout(30)
class ServersTest {
  private static double sum(String address, Consumer<ConnectOptions> options) {
    try (Session session = Gradwire.connect(address, options)) {
      return session.tensor(new float[] {1, 2}).sum().item();
    }
  }

  private static <E extends GradwireException> E refused(
      Class<E> kind, String address, Consumer<ConnectOptions> options) {
    return assertThrows(kind, () -> sum(address, options));
  }

  private static void says(GradwireException told, String sentence) {
    assertTrue(told.getMessage().contains(sentence), told.getMessage());
  }

  private static String secure() {
    return TestServer.needed("GRADWIRE_SECURE");
  }

  private static Path authority() {
    return Path.of(TestServer.needed("GRADWIRE_SECURE_CA"));
  }

  private static String token() {
    return TestServer.needed("GRADWIRE_SECURE_TOKEN");
  }

  @Test
  void theRightAuthorityAndToken() {
    assertEquals(3, sum(secure(), options -> options.tls(authority()).token(token())));
  }

  @Test
  void aServersCertificateThatIsNotTrusted() {
    Path other = Path.of(TestServer.needed("GRADWIRE_SECURE_OTHER_CA"));
    List<Consumer<ConnectOptions>> wrong =
        List.of(
            options -> options.tls(other),
            options -> options.tls(),
            options ->
                options.tls(authority()).channel(made -> made.overrideAuthority("example.org")));
    for (Consumer<ConnectOptions> each : wrong) {
      var told =
          refused(
              GradwireException.Connection.class, secure(), each.andThen(o -> o.token(token())));
      says(told, "certificate is not trusted: pass the PEM file of the authority that signed it");
    }
  }

  @Test
  void aMissingAndAWrongToken() {
    var missing =
        refused(GradwireException.Permission.class, secure(), options -> options.tls(authority()));
    assertEquals(Reason.REASON_UNAUTHENTICATED, missing.reason());
    says(missing, "No token was given: call token()");
    var wrong =
        refused(
            GradwireException.Permission.class,
            secure(),
            options -> options.tls(authority()).token(token() + "x"));
    says(wrong, "unknown to this server, or has expired");
    var odd =
        refused(
            GradwireException.Argument.class,
            secure(),
            options -> options.tls(authority()).token("to\nken"));
    assertFalse(odd.getMessage().contains("to\nken"), odd.getMessage());
  }

  @Test
  void tlsOnOneSideOnly() {
    var plain = refused(GradwireException.Connection.class, secure(), o -> o.token(token()));
    says(plain, "The server seems to use TLS: pass the PEM file");
    var encrypted =
        refused(GradwireException.Connection.class, TestServer.address(), o -> o.tls(authority()));
    says(encrypted, "The server seems not to use TLS: remove tls()");
  }

  @Test
  void aDeadAddressBeforeALiveOne() {
    assertEquals(3, sum("127.0.0.1:1, " + TestServer.address(), options -> {}));
    String both = "127.0.0.1:1," + secure();
    assertEquals(3, sum(both, options -> options.tls(authority()).token(token())));
  }

  @Test
  void aSessionThatMovesIsFollowedToItsServer() {
    String moving = TestServer.needed("GRADWIRE_MOVING");
    try (Session session = Gradwire.connect(moving, options -> options.localStream(false))) {
      Tensor sum = session.scalar(0);
      for (int count = 0; count < 1000; count++) {
        sum.addInPlace(1);
      }
      assertEquals(1000, sum.item());
      assertEquals(TestServer.address(), session.address());
      // Transfers are refused by the first server, so these go to the second one.
      assertEquals(1 << 20, session.tensor(new float[1 << 20]).add(1).sum().item());
    }
  }

  @Test
  void noServer() {
    var told =
        refused(
            GradwireException.Connection.class,
            "127.0.0.1:1",
            options -> options.patience(Duration.ofMillis(100)));
    says(told, "no connection to 127.0.0.1:1");
    says(told, "\n  No server listens there: start `gradwire serve`");
  }

  @Test
  void addressesThatCannotBeOne() {
    for (String each : List.of("localhost", "localhost:70000", "http://localhost:50051", "")) {
      says(refused(GradwireException.Argument.class, each, o -> {}), "give HOST:PORT");
    }
  }
}
