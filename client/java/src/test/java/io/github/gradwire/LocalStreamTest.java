package io.github.gradwire;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import com.google.protobuf.Any;
import com.google.rpc.ErrorInfo;
import com.google.rpc.Status;
import io.github.gradwire.v1.CloseSessionRequest;
import io.github.gradwire.v1.Error;
import io.github.gradwire.v1.Reason;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Streams by a Unix socket, and where gRPC replaces them. */
@Timeout(60)
class LocalStreamTest {
  @BeforeEach
  void onLinux() {
    String off = System.getenv("GRADWIRE_LOCAL_STREAM");
    boolean linux = System.getProperty("os.name").equals("Linux");
    assumeTrue(linux && !"0".equals(off), "needs Linux, and GRADWIRE_LOCAL_STREAM unset");
  }

  private static void trains(Session session) {
    Tensor x = session.tensor(new float[] {1, 2}).requiresGrad(true);
    for (int turn = 0; turn < 50; turn++) {
      x.mul(x).sum().backward();
    }
    assertArrayEquals(new float[] {100, 200}, x.grad().floats());
  }

  @Test
  void aSessionBesideItsServerHasItsStreamWithoutGrpc() {
    try (Session session = TestServer.connect()) {
      trains(session);
      assertTrue(session.usesLocalStream());
    }
  }

  @Test
  void theStreamUsesGrpcWhereLocalStreamsAreSwitchedOff() {
    try (Session session = Gradwire.connect(TestServer.address(), o -> o.localStream(false))) {
      trains(session);
      assertFalse(session.usesLocalStream());
    }
  }

  @Test
  void aSocketThatIsNotThereLeavesTheStreamToGrpc() {
    assertTrue(LocalStream.isUsable("gradwire-none"));
    assertNull(LocalStream.open(null, null, null, "gradwire-none"));
  }

  @Test
  void largeAnswersArriveWhole() {
    try (Session session = TestServer.connect()) {
      float[] values = new float[200_000];
      for (int place = 0; place < values.length; place++) {
        values[place] = place;
      }
      Tensor many = session.tensor(values);
      Tensor few = session.tensor(new float[] {1});
      for (int turn = 0; turn < 3; turn++) {
        assertArrayEquals(values, many.floats());
        assertEquals(1, few.item());
      }
      assertTrue(session.usesLocalStream());
    }
  }

  @Test
  void aRefusalOfTheStreamEndsTheSession() {
    Session session = TestServer.connect();
    session.await();
    session
        .stub()
        .closeSession(CloseSessionRequest.newBuilder().setSessionId(session.id()).build());
    var told = assertThrows(GradwireException.SessionEnded.class, () -> session.scalar(1).item());
    assertEquals(Reason.REASON_SESSION_NOT_FOUND, told.reason());
    session.abandon();
  }

  @Test
  void theLastMessageIsTheRefusal() throws Exception {
    ErrorInfo info =
        ErrorInfo.newBuilder().setReason("SESSION_MOVED").putMetadata("endpoint", "b:1").build();
    Status status =
        Status.newBuilder().setCode(14).setMessage("moved").addDetails(Any.pack(info)).build();
    Error error = GradwireException.fromStatus(status);
    assertEquals(Reason.REASON_SESSION_MOVED, error.getReason());
    assertEquals("b:1", error.getMetadataOrThrow("endpoint"));
    assertEquals("moved", error.getMessage());
    Status plain = Status.newBuilder().setCode(14).setMessage("busy").build();
    assertTrue(GradwireException.mayRetry(GradwireException.fromStatus(plain)));
  }
}
