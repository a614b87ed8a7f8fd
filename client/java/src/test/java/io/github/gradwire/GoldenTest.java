package io.github.gradwire;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import com.google.protobuf.ByteString;
import io.github.gradwire.v1.GradMode;
import io.github.gradwire.v1.OpenSessionResponse;
import io.grpc.Metadata;
import io.grpc.Status;
import java.io.IOException;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.TreeMap;
import org.junit.jupiter.api.Test;

/** The bytes of tests/conformance/golden.json. */
class GoldenTest {
  private final Session session =
      Session.recording(OpenSessionResponse.getDefaultInstance(), new Recorder());

  private static JsonArray vectors(String kind) throws IOException {
    String text = Files.readString(TestServer.conformance().resolve("golden.json"));
    return JsonParser.parseString(text).getAsJsonObject().getAsJsonArray(kind);
  }

  private static String hex(ByteString bytes) {
    return HexFormat.of().formatHex(bytes.toByteArray());
  }

  @Test
  void wordsOfPreparedCalls() throws IOException {
    for (JsonElement each : vectors("prepared_calls")) {
      JsonObject vector = each.getAsJsonObject();
      Call call = session.call(vector.get("op").getAsString());
      for (JsonElement given : vector.getAsJsonArray("args")) {
        add(call, "", given.getAsJsonObject());
      }
      if (vector.has("named")) {
        TreeMap<String, JsonElement> named = new TreeMap<>(vector.getAsJsonObject("named").asMap());
        named.forEach((name, given) -> add(call, name, given.getAsJsonObject()));
      }
      if (vector.get("op").getAsString().equals("getitem")) {
        boolean can = call.key(new Words(8), GradMode.GRAD_MODE_ENABLED, 1);
        assertFalse(can, "an index would be prepared, but has no words");
        continue;
      }
      List<Tensor> made = new ArrayList<>();
      if (vector.has("outputs")) {
        vector.getAsJsonArray("outputs").forEach(id -> made.add(tensor(id)));
      }
      Words words = new Words(8);
      call.words(words, vector.get("number").getAsInt(), made.toArray(Tensor[]::new));
      assertEquals(vector.get("words").getAsString(), hex(words.toByteString()), vector::toString);
    }
  }

  private Tensor tensor(JsonElement id) {
    return new Tensor(session, id.getAsLong());
  }

  private void add(Call call, String name, JsonObject given) {
    String kind = given.keySet().iterator().next();
    JsonElement value = given.get(kind);
    switch (kind) {
      case "tensor" -> call.tensor(name, tensor(value));
      case "tensors" ->
          call.tensors(name, value.getAsJsonArray().asList().stream().map(this::tensor).toList());
      case "float" -> call.real(name, value.getAsDouble());
      case "integer" -> call.integer(name, value.getAsLong());
      case "integers" -> call.integers(name, ScenarioRunner.integers(value));
      case "boolean" -> call.bool(name, value.getAsBoolean());
      case "index" -> call.index(name, Index.at(0));
      default -> throw new AssertionError("unknown kind " + kind);
    }
  }

  @Test
  void hashesOfPrograms() throws IOException {
    for (JsonElement each : vectors("programs")) {
      JsonObject vector = each.getAsJsonObject();
      byte[] bytes = HexFormat.of().parseHex(vector.get("bytes").getAsString());
      ByteString again = io.github.gradwire.v1.Program.parseFrom(bytes).toByteString();
      assertEquals(vector.get("sha256").getAsString(), hex(Program.sha256(again)));
    }
  }

  @Test
  void trailersOfRefusals() throws IOException {
    for (JsonElement each : vectors("errors")) {
      JsonObject vector = each.getAsJsonObject();
      Metadata trailers = new Metadata();
      trailers.put(
          Metadata.Key.of("gradwire-error-bin", Metadata.BINARY_BYTE_MARSHALLER),
          HexFormat.of().parseHex(vector.get("bytes").getAsString()));
      Throwable thrown = Status.UNKNOWN.asRuntimeException(trailers);
      GradwireException told = GradwireException.of(GradwireException.fromStatus(thrown));
      assertEquals("REASON_" + vector.get("reason").getAsString(), told.reason().name());
      assertEquals(vector.get("message").getAsString(), told.getMessage());
      assertEquals(vector.getAsJsonObject("metadata").get("op").getAsString(), told.op());
      assertEquals(2, told.shape().length);
    }
  }
}
