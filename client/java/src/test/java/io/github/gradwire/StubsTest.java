package io.github.gradwire;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.protobuf.ByteString;
import io.github.gradwire.v1.Argument;
import io.github.gradwire.v1.AutogradServiceGrpc;
import io.github.gradwire.v1.BackwardRequest;
import io.github.gradwire.v1.CloseSessionRequest;
import io.github.gradwire.v1.CreateRequest;
import io.github.gradwire.v1.Dtype;
import io.github.gradwire.v1.GradRequest;
import io.github.gradwire.v1.OpRequest;
import io.github.gradwire.v1.OpenSessionRequest;
import io.github.gradwire.v1.Payload;
import io.github.gradwire.v1.ReadRequest;
import io.grpc.ManagedChannel;
import io.grpc.ManagedChannelBuilder;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.Test;

/** The code of docs/other-languages.md, which uses the stubs alone. */
class StubsTest {
  @Test
  void stubsGiveAGradient() {
    String address = TestServer.address();
    ManagedChannel channel = ManagedChannelBuilder.forTarget(address).usePlaintext().build();
    var stub = AutogradServiceGrpc.newBlockingStub(channel);
    String session =
        stub.openSession(OpenSessionRequest.newBuilder().setClient("java").build()).getSessionId();

    ByteBuffer bytes = ByteBuffer.allocate(4).order(ByteOrder.LITTLE_ENDIAN).putFloat(0, 3f);
    Payload payload =
        Payload.newBuilder()
            .setDtype(Dtype.DTYPE_FLOAT32)
            .setData(ByteString.copyFrom(bytes))
            .build();
    long a =
        stub.create(
                CreateRequest.newBuilder()
                    .setSessionId(session)
                    .setRequiresGrad(true)
                    .setPayload(payload)
                    .build())
            .getTensor()
            .getId();
    Argument argument = Argument.newBuilder().setTensor(a).build();
    long b =
        stub.op(
                OpRequest.newBuilder()
                    .setSessionId(session)
                    .setOp("mul")
                    .addArgs(argument)
                    .addArgs(argument)
                    .build())
            .getOutputs(0)
            .getId();
    stub.backward(BackwardRequest.newBuilder().setSessionId(session).addTensors(b).build());
    long gradient =
        stub.grad(GradRequest.newBuilder().setSessionId(session).setTensor(a).build())
            .getGrad()
            .getId();
    ByteString read =
        stub.read(ReadRequest.newBuilder().setSessionId(session).setTensor(gradient).build())
            .getPayload()
            .getData();
    float value = read.asReadOnlyByteBuffer().order(ByteOrder.LITTLE_ENDIAN).getFloat(); // 6
    stub.closeSession(CloseSessionRequest.newBuilder().setSessionId(session).build());
    assertEquals(6, value);
    channel.shutdownNow();
  }

  @Test
  void thePageIsTested() throws IOException {
    String page = Files.readString(Path.of("../../docs/other-languages.md"));
    String source = "src/test/java/io/github/gradwire/StubsTest.java";
    String tested = Files.readString(Path.of(source)).replaceAll("\\s+", "");
    String block = page.split("```java\n")[1].split("```")[0];
    block = block.substring(block.indexOf('\n')).replace("\"127.0.0.1:50051\"", "address");
    assertTrue(tested.contains(block.replaceAll("\\s+", "")), "StubsTest lacks the page's code");
  }
}
