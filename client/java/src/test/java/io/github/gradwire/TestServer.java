package io.github.gradwire;

import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.Map;

/** The live server and the proxies that `make test-sdks` gives to the tests. */
final class TestServer {
  private TestServer() {}

  /** The address of a live server; without one, a test is skipped. */
  static String address() {
    return needed("GRADWIRE_ADDRESS");
  }

  static String needed(String variable) {
    String value = System.getenv(variable);
    assumeTrue(value != null, "needs a server: set " + variable + ", or run make test-sdks");
    return value;
  }

  static Session connect() {
    return Gradwire.connect(address());
  }

  /** The folder tests/conformance. */
  static Path conformance() {
    Map<String, String> environment = System.getenv();
    return Path.of(environment.getOrDefault("GRADWIRE_CONFORMANCE", "../../tests/conformance"));
  }

  /** A server of the test's own, which can be restarted. */
  static final class Restarting implements AutoCloseable {
    final String address;
    private final Socket control;
    private final BufferedReader lines;

    Restarting() throws IOException {
      String[] target = needed("GRADWIRE_RESTARTING").split(":");
      control = new Socket(target[0], Integer.parseInt(target[1]));
      lines =
          new BufferedReader(
              new InputStreamReader(control.getInputStream(), StandardCharsets.UTF_8));
      address = lines.readLine().strip();
    }

    /** Kills the server, and starts it again on its state directory. */
    void restart() throws IOException {
      control.getOutputStream().write("restart\n".getBytes(StandardCharsets.UTF_8));
      lines.readLine();
    }

    @Override
    public void close() throws IOException {
      control.close();
    }
  }

  /** A proxy before the server, which cuts connections after a random number of bytes. */
  static final class Cutter implements AutoCloseable {
    final String address;
    private final Socket control;
    private final BufferedReader lines;

    Cutter(int least, int most) throws IOException {
      String[] target = needed("GRADWIRE_CUTTING").split(":");
      control = new Socket(target[0], Integer.parseInt(target[1]));
      lines =
          new BufferedReader(
              new InputStreamReader(control.getInputStream(), StandardCharsets.UTF_8));
      String asked = least + " " + most + "\n";
      control.getOutputStream().write(asked.getBytes(StandardCharsets.UTF_8));
      address = lines.readLine().strip();
    }

    /** Ends the proxy and tells how often it cut. */
    int cuts() throws IOException {
      control.shutdownOutput();
      return Integer.parseInt(lines.readLine().strip());
    }

    @Override
    public void close() throws IOException {
      control.close();
    }
  }
}
