package io.github.gradwire;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;

/** The code of docs/languages/java.md. Its first program is that of the README. */
class PageTest {
  @Test
  void gradientsAndErrors() {
    try (Session session = TestServer.connect()) {
      Tensor a = session.tensor(new float[] {1, 2, 3}).requiresGrad(true);
      Tensor b = a.mul(a).retainGrad();
      b.sum().backward();
      float[] gradient = a.grad().floats(); // 2, 4, 6
      float[] kept = b.grad().floats(); // 1, 1, 1
      assertArrayEquals(new float[] {2, 4, 6}, gradient);
      assertArrayEquals(new float[] {1, 1, 1}, kept);

      Tensor m = session.ones(2, 3);
      try {
        m.matmul(m).floats();
      } catch (GradwireException.Shape refusal) {
        // matmul: mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)
        System.out.println(refusal.op() + ": " + refusal.getMessage());
      }
    }
  }

  @Test
  void hooksProgramsAndScopes() {
    try (Session session = TestServer.connect()) {
      Tensor a = session.tensor(new float[] {1, 2, 3}).requiresGrad(true);
      a.zeroGrad();
      Hook hook = a.registerHook(each -> each.mul(2));
      a.mul(a).sum().backward();
      hook.remove();
      float[] doubled = a.grad().floats(); // 4, 8, 12
      assertArrayEquals(new float[] {4, 8, 12}, doubled);

      Program program =
          session.trace(
              List.of(Input.of(3)),
              0,
              (recording, inputs, numbers) -> List.of(inputs.get(0).mul(2).sum()));
      double twice = program.run(List.of(a.detach())).get(0).item(); // 12
      assertEquals(12, twice);

      Tensor total;
      try (var scope = session.scope()) {
        total = a.exp().sum().keep();
      }
      assertTrue(total.item() > 30);
    }
  }

  @Test
  void snapshots() {
    String address = TestServer.address();
    try (Session session = TestServer.connect()) {
      Tensor a = session.tensor(new float[] {1, 2, 3});
      session.save("epoch-1", Map.of("a", a), Duration.ofHours(1));
      float[] values;
      try (Restored again = Gradwire.restore(address, "epoch-1")) {
        values = again.tensors().get("a").floats(); // 1, 2, 3
      }
      session.deleteSnapshot("epoch-1");
      assertArrayEquals(new float[] {1, 2, 3}, values);
    }
  }

  @Test
  void isThatOfThePage() throws IOException {
    String page = Files.readString(Path.of("../../docs/languages/java.md"));
    Path tests = Path.of("src/test/java/io/github/gradwire");
    String here =
        squeezed(
            Files.readString(tests.resolve("PageTest.java"))
                + Files.readString(tests.resolve("ReadmeTest.java")));
    String[] blocks = page.split("```java\n");
    assertTrue(blocks.length > 6);
    for (int place = 1; place < blocks.length; place++) {
      String block =
          blocks[place]
              .split("```", 2)[0]
              .replace("\"127.0.0.1:50051\"", "address")
              .replace("System.out.println(slope);", "return slope;");
      assertTrue(here.contains(squeezed(block)), "the page has other code:\n" + block);
    }
  }

  private static String squeezed(String code) {
    return code.lines().map(String::strip).collect(Collectors.joining("\n")).strip();
  }
}
