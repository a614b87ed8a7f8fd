package io.github.gradwire;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;

/** The code of README.md. */
class ReadmeTest {
  @Test
  void trains() {
    assertEquals(3, slope(TestServer.address()), 1e-4);
  }

  private static double slope(String address) {
    try (Session session = Gradwire.connect(address)) {
      Tensor x = session.tensor(new float[] {0, 1, 2, 3});
      Tensor y = session.tensor(new float[] {-1, 2, 5, 8});
      Tensor w = session.scalar(0).requiresGrad(true);
      for (int step = 0; step < 300; step++) {
        Functional.mseLoss(x.mul(w).sub(1), y).backward();
        try (var mode = session.noGrad()) {
          w.subInPlace(w.grad().mul(0.1));
        }
        w.zeroGrad();
      }
      double slope = w.item();
      return slope; // 3.0
    }
  }

  @Test
  void isThatOfTheReadme() throws IOException {
    String page = Files.readString(Path.of("README.md"));
    String block = page.split("```java\n", 2)[1].split("```", 2)[0];
    String here = Files.readString(Path.of("src/test/java/io/github/gradwire/ReadmeTest.java"));
    String told =
        block
            .replace("\"127.0.0.1:50051\"", "address")
            .replace("System.out.println(slope);", "return slope;");
    assertTrue(squeezed(here).contains(squeezed(told)), "the README has other code");
  }

  private static String squeezed(String code) {
    return code.lines().map(String::strip).collect(Collectors.joining("\n")).strip();
  }
}
