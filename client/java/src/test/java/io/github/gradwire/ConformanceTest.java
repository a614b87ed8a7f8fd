package io.github.gradwire;

import static org.junit.jupiter.api.Assertions.assertTimeoutPreemptively;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeFalse;

import com.google.gson.Gson;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.TestFactory;

/** The scenarios of tests/conformance, whose README.md describes the steps. */
class ConformanceTest {
  private static final Map<String, String> REPORT = new TreeMap<>();

  @TestFactory
  List<DynamicTest> scenarios() throws IOException {
    TestServer.address();
    List<Path> paths;
    try (Stream<Path> files = Files.list(TestServer.conformance().resolve("scenarios"))) {
      paths = files.filter(each -> each.toString().endsWith(".json")).sorted().toList();
    }
    List<DynamicTest> tests = new ArrayList<>();
    for (Path path : paths) {
      String subject = path.getFileName().toString().replace(".json", "");
      for (JsonElement each : JsonParser.parseString(Files.readString(path)).getAsJsonArray()) {
        JsonObject scenario = each.getAsJsonObject();
        String name = subject + ": " + scenario.get("name").getAsString();
        tests.add(DynamicTest.dynamicTest(name, () -> reported(name, scenario)));
      }
    }
    assertTrue(tests.size() > 100, "the scenarios are not found");
    return tests;
  }

  @AfterAll
  static void writeReport() throws IOException {
    String path = System.getenv("GRADWIRE_CONFORMANCE_REPORT");
    if (path != null) {
      Files.writeString(Path.of(path), new Gson().toJson(REPORT));
    }
  }

  private static void reported(String name, JsonObject scenario) throws Exception {
    String needs = scenario.has("needs") ? scenario.get("needs").getAsString() : "";
    REPORT.put(name, "lacks " + needs);
    assumeFalse(needs.equals("node hooks"), "Java lacks node hooks");
    REPORT.put(name, "failed");
    assertTimeoutPreemptively(Duration.ofSeconds(60), () -> run(scenario));
    REPORT.put(name, "ok");
  }

  private static void run(JsonObject scenario) throws Exception {
    if (!scenario.has("cuts")) {
      try (Session session = open(TestServer.address(), scenario)) {
        new ScenarioRunner(session).run(scenario.getAsJsonArray("steps"));
        session.await();
      }
      return;
    }
    long[] range = ScenarioRunner.integers(scenario.get("cuts"));
    try (TestServer.Cutter cutter = new TestServer.Cutter((int) range[0], (int) range[1])) {
      Session session = open(cutter.address, scenario); // the proxy ends first, and then the lease
      new ScenarioRunner(session).run(scenario.getAsJsonArray("steps"));
      session.await();
      int cuts = cutter.cuts();
      assertTrue(cuts >= 2, cuts + " cuts, " + session.reconnects() + " reconnects");
      session.abandon();
    }
  }

  private static Session open(String address, JsonObject scenario) {
    long lease = scenario.has("lease_ms") ? scenario.get("lease_ms").getAsLong() : 0;
    boolean cuts = scenario.has("cuts"); // a local stream would pass the proxy by
    return Gradwire.connect(
        address, options -> options.lease(Duration.ofMillis(lease)).localStream(!cuts));
  }
}
