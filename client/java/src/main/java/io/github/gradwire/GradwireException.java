package io.github.gradwire;

import com.google.protobuf.Any;
import com.google.protobuf.InvalidProtocolBufferException;
import com.google.rpc.ErrorInfo;
import io.github.gradwire.v1.Error;
import io.github.gradwire.v1.Reason;
import io.grpc.Metadata;
import io.grpc.Status;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/**
 * A refusal by the server, or a mistake that this library found before it sent anything.
 *
 * <p>The message says what is wrong in PyTorch's words, where PyTorch has some. The class is chosen
 * by the {@link #reason}: catch {@link Shape}, {@link Graph} and so on, or this class for all.
 */
public class GradwireException extends RuntimeException {
  private static final long serialVersionUID = 1L;
  private static final Metadata.Key<byte[]> TRAILER =
      Metadata.Key.of("gradwire-error-bin", Metadata.BINARY_BYTE_MARSHALLER);

  private final transient Error error;

  GradwireException(Error error) {
    super(error.getMessage());
    this.error = error;
  }

  /** Shapes that do not match or are out of bounds. */
  public static final class Shape extends GradwireException {
    private static final long serialVersionUID = 1L;

    Shape(Error error) {
      super(error);
    }
  }

  /** Element types that do not match, or that the op does not support. */
  public static final class ElementType extends GradwireException {
    private static final long serialVersionUID = 1L;

    ElementType(Error error) {
      super(error);
    }
  }

  /** An argument of a wrong kind, name, number, size or value. */
  public static final class Argument extends GradwireException {
    private static final long serialVersionUID = 1L;

    Argument(Error error) {
      super(error);
    }
  }

  /** A dimension or an index that the tensor does not have (Python's IndexError). */
  public static final class OutOfRange extends GradwireException {
    private static final long serialVersionUID = 1L;

    OutOfRange(Error error) {
      super(error);
    }
  }

  /** A mistake with gradients: a freed graph, a leaf changed in place, an unused input. */
  public static final class Graph extends GradwireException {
    private static final long serialVersionUID = 1L;

    Graph(Error error) {
      super(error);
    }
  }

  /** An op, a case or a device that the server does not have. */
  public static final class Unsupported extends GradwireException {
    private static final long serialVersionUID = 1L;

    Unsupported(Error error) {
      super(error);
    }
  }

  /** A limit of the server or of the session: memory, tensors, compute time. */
  public static final class Limit extends GradwireException {
    private static final long serialVersionUID = 1L;

    Limit(Error error) {
      super(error);
    }
  }

  /** The session is closed, gone, or cannot continue. */
  public static final class SessionEnded extends GradwireException {
    private static final long serialVersionUID = 1L;

    SessionEnded(Error error) {
      super(error);
    }
  }

  /** The server could not be reached, or did not answer in time. */
  public static final class Connection extends GradwireException {
    private static final long serialVersionUID = 1L;

    Connection(Error error) {
      super(error);
    }
  }

  /** The caller is not authenticated, or may not do this. */
  public static final class Permission extends GradwireException {
    private static final long serialVersionUID = 1L;

    Permission(Error error) {
      super(error);
    }
  }

  /** The command was cancelled, its deadline passed, or the waiting thread was interrupted. */
  public static final class Cancelled extends GradwireException {
    private static final long serialVersionUID = 1L;

    Cancelled(Error error) {
      super(error);
    }
  }

  /** Why the command was refused, for programs. The set is closed. */
  public final Reason reason() {
    return error == null ? Reason.REASON_UNSPECIFIED : error.getReason();
  }

  /** The name of the refused op; empty if there is none. */
  public final String op() {
    return metadata().getOrDefault("op", "");
  }

  /** The parameter or field at fault; empty if it is not one alone. */
  public final String argument() {
    return metadata().getOrDefault("argument", "");
  }

  /** The shape of the op's first tensor; null if not told. */
  public final long[] shape() {
    return parseShape(metadata().getOrDefault("shape", ""));
  }

  /** All details. The keys depend on the reason. */
  public final Map<String, String> metadata() {
    return error == null ? Map.of() : error.getMetadataMap();
  }

  /** The exception for a refusal, with the stack of the caller. */
  static GradwireException of(Error error) {
    return switch (error.getReason()) {
      case REASON_SHAPE -> new Shape(error);
      case REASON_DTYPE -> new ElementType(error);
      case REASON_ARGUMENT_TYPE,
          REASON_ARGUMENT_VALUE,
          REASON_PAYLOAD_SIZE,
          REASON_MALFORMED,
          REASON_MESSAGE_TOO_LARGE ->
          new Argument(error);
      case REASON_DIM_OUT_OF_RANGE, REASON_INDEX_OUT_OF_RANGE -> new OutOfRange(error);
      case REASON_GRADIENT_NEEDS_SCALAR,
          REASON_NO_GRAD_FN,
          REASON_GRAPH_FREED,
          REASON_VERSION_CONFLICT,
          REASON_LEAF_IN_PLACE,
          REASON_UNUSED_INPUT,
          REASON_REQUIRES_GRAD ->
          new Graph(error);
      case REASON_OP_UNKNOWN, REASON_NOT_SUPPORTED, REASON_DEVICE_UNAVAILABLE ->
          new Unsupported(error);
      case REASON_MEMORY_LIMIT,
          REASON_TENSOR_LIMIT,
          REASON_SESSION_LIMIT,
          REASON_PROGRAM_LIMIT,
          REASON_COMPUTE_LIMIT,
          REASON_TRAFFIC_LIMIT,
          REASON_OP_LIMIT,
          REASON_SNAPSHOT_LIMIT,
          REASON_STORAGE ->
          new Limit(error);
      case REASON_SESSION_NOT_FOUND,
          REASON_SESSION_EXPIRED,
          REASON_SESSION_MOVED,
          REASON_EPOCH_MISMATCH,
          REASON_SEQUENCE_GAP,
          REASON_RESULT_FORGOTTEN,
          REASON_STREAM_TAKEN,
          REASON_PROTOCOL_VERSION ->
          new SessionEnded(error);
      case REASON_UNAVAILABLE, REASON_UNSPECIFIED -> new Connection(error);
      case REASON_UNAUTHENTICATED, REASON_PERMISSION_DENIED -> new Permission(error);
      case REASON_CANCELLED, REASON_DEADLINE_EXCEEDED -> new Cancelled(error);
      default -> new GradwireException(error);
    };
  }

  /** A mistake found here. */
  static GradwireException mistake(Reason reason, String op, String format, Object... args) {
    Error.Builder error = Error.newBuilder().setReason(reason).setMessage(format.formatted(args));
    if (!op.isEmpty()) {
      error.putMetadata("op", op);
    }
    return of(error.build());
  }

  /** The refusal in a call's trailer, or the status without a reason if the connection failed. */
  static Error fromStatus(Throwable thrown) {
    Metadata trailers = Status.trailersFromThrowable(thrown);
    byte[] data = trailers == null ? null : trailers.get(TRAILER);
    if (data != null) {
      try {
        return Error.parseFrom(data);
      } catch (InvalidProtocolBufferException malformed) {
        return status(Status.DATA_LOSS.withDescription("the server's refusal cannot be read"));
      }
    }
    return status(Status.fromThrowable(thrown));
  }

  /** The refusal of a local stream's last message. */
  static Error fromStatus(com.google.rpc.Status status) throws InvalidProtocolBufferException {
    Error.Builder error =
        Error.newBuilder().setCode(status.getCode()).setMessage(status.getMessage());
    for (Any detail : status.getDetailsList()) {
      if (detail.is(ErrorInfo.class)) {
        ErrorInfo info = detail.unpack(ErrorInfo.class);
        var reason = Reason.getDescriptor().findValueByName("REASON_" + info.getReason());
        if (reason != null) { // otherwise a server after this client
          error.setReason(Reason.valueOf(reason)).putAllMetadata(info.getMetadataMap());
        }
      }
    }
    return error.build();
  }

  private static Error status(Status status) {
    Throwable cause = status.getCause();
    String told = status.getDescription() == null ? "" : ": " + status.getDescription();
    told += cause == null ? "" : ": " + cause.getMessage();
    return Error.newBuilder()
        .setCode(status.getCode().value())
        .setMessage(status.getCode() + told)
        .build();
  }

  /** Whether the same call may succeed later. */
  static boolean mayRetry(Error error) {
    return switch (error.getReason()) {
      case REASON_UNAVAILABLE, REASON_STREAM_TAKEN, REASON_SESSION_MOVED -> true;
      case REASON_UNSPECIFIED ->
          error.getCode() != Status.Code.UNIMPLEMENTED.value()
              && error.getCode() != Status.Code.INVALID_ARGUMENT.value()
              && error.getCode() != Status.Code.DATA_LOSS.value();
      default -> false;
    };
  }

  /** Reads "[2, 3]"; null for anything else. */
  private static long[] parseShape(String text) {
    if (!text.startsWith("[") || !text.endsWith("]")) {
      return null;
    }
    List<Long> sizes = new ArrayList<>();
    for (String part : text.substring(1, text.length() - 1).split("[, ]+")) {
      if (part.isEmpty()) {
        continue;
      }
      try {
        sizes.add(Long.parseLong(part));
      } catch (NumberFormatException other) {
        return null;
      }
    }
    return sizes.stream().mapToLong(Long::longValue).toArray();
  }
}
