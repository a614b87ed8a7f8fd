package io.github.gradwire;

import io.github.gradwire.v1.Command;
import io.github.gradwire.v1.DescribeRequest;
import io.github.gradwire.v1.GradRequest;
import io.github.gradwire.v1.HookKind;
import io.github.gradwire.v1.ReadRequest;
import io.github.gradwire.v1.ReadResponse;
import io.github.gradwire.v1.Reason;
import io.github.gradwire.v1.Result;
import io.github.gradwire.v1.RetainGradRequest;
import io.github.gradwire.v1.SetDataRequest;
import io.github.gradwire.v1.SetGradRequest;
import io.github.gradwire.v1.SetRequiresGradRequest;
import io.github.gradwire.v1.TensorSpec;
import java.lang.ref.Cleaner;
import java.lang.ref.Reference;
import java.nio.DoubleBuffer;
import java.nio.FloatBuffer;
import java.nio.LongBuffer;
import java.util.List;
import java.util.function.Consumer;
import java.util.function.UnaryOperator;

/**
 * A tensor on the server. Its values may not be computed yet: methods return at once, and a mistake
 * surfaces at the next read or {@link Session#await}. Methods that wait say so.
 *
 * <p>The server keeps the tensor until {@link #close}, the end of the {@link TensorScope} in which
 * it was made, or a collection of garbage here.
 */
public final class Tensor extends TensorOps implements AutoCloseable {
  private final Session session;
  private final long id;
  private volatile boolean kept;
  Cleaner.Cleanable cleanable; // null if the id is not this object's to release

  Tensor(Session session, long id) {
    this.session = session;
    this.id = id;
  }

  /** The session that the tensor belongs to. */
  public Session session() {
    return session;
  }

  /** The number of the tensor in its session. */
  public long id() {
    return id;
  }

  // Memory

  /** Lets the tensor live on after the scope in which it was made. Returns this tensor. */
  public Tensor keep() {
    kept = true;
    return this;
  }

  boolean isKept() {
    return kept;
  }

  /**
   * Frees the tensor on the server, unless a graph or another tensor needs its values. Use it no
   * more.
   */
  @Override
  public void close() {
    if (cleanable != null) {
      cleanable.clean();
    }
  }

  // What the server tells

  /**
   * A tensor without its values.
   *
   * @param gradFn the name of the node that made it, as in PyTorch; empty for a leaf
   * @param version the number of in-place changes of its bytes
   */
  public record Description(
      DType dtype,
      List<Long> shape,
      String device,
      boolean requiresGrad,
      boolean isLeaf,
      String gradFn,
      boolean retainsGrad,
      boolean isView,
      long version) {}

  /** Asks for shape, element type and flags. Waits. */
  public Description describe() {
    DescribeRequest.Builder request = DescribeRequest.newBuilder().addTensors(id);
    TensorSpec spec = ask(Command.newBuilder().setDescribe(request)).getDescribe().getTensors(0);
    return new Description(
        DType.of(spec.getDtype()),
        List.copyOf(spec.getShapeList()),
        spec.getDevice(),
        spec.getRequiresGrad(),
        spec.getIsLeaf(),
        spec.getGradFn(),
        spec.getRetainsGrad(),
        spec.getIsView(),
        spec.getVersion());
  }

  /** Asks for the sizes of the dimensions. Waits. */
  public long[] shape() {
    return describe().shape().stream().mapToLong(Long::longValue).toArray();
  }

  /** Fetches the values. Waits, and throws the first refusal since the last wait or read. */
  public Payload read() {
    return payload(fetch());
  }

  private ReadResponse fetch() {
    ReadRequest.Builder request = ReadRequest.newBuilder().setTensor(id);
    return ask(Command.newBuilder().setRead(request)).getRead();
  }

  private Payload payload(ReadResponse answer) {
    return answer.hasTransfer()
        ? new Bulk(session).download(answer.getTransfer())
        : Payload.of(answer.getPayload());
  }

  /** How many elements a large answer has, if they are of this type; else -1. */
  private static int large(ReadResponse answer, DType dtype) {
    boolean is = answer.hasTransfer() && answer.getTransfer().getDtype() == dtype.proto;
    return is ? Math.toIntExact(answer.getTransfer().getTotalBytes() / dtype.size()) : -1;
  }

  /** Reads a tensor of any real element type as floats. Waits. */
  public float[] floats() {
    ReadResponse answer = fetch();
    int count = large(answer, DType.FLOAT32);
    if (count < 0) {
      return payload(answer).floats();
    }
    FloatBuffer made = FloatBuffer.allocate(count);
    new Bulk(session)
        .download(answer.getTransfer(), Float.BYTES, part -> made.put(part.asFloatBuffer()));
    return made.array();
  }

  /** Reads a tensor of any real element type as doubles. Waits. */
  public double[] doubles() {
    ReadResponse answer = fetch();
    int count = large(answer, DType.FLOAT64);
    if (count < 0) {
      return payload(answer).doubles();
    }
    DoubleBuffer made = DoubleBuffer.allocate(count);
    new Bulk(session)
        .download(answer.getTransfer(), Double.BYTES, part -> made.put(part.asDoubleBuffer()));
    return made.array();
  }

  /** Reads a tensor of integers or bools. Waits. */
  public long[] longs() {
    ReadResponse answer = fetch();
    int count = large(answer, DType.INT64);
    if (count < 0) {
      return payload(answer).longs();
    }
    LongBuffer made = LongBuffer.allocate(count);
    new Bulk(session)
        .download(answer.getTransfer(), Long.BYTES, part -> made.put(part.asLongBuffer()));
    return made.array();
  }

  /** Reads a tensor of one element. Waits. */
  public double item() {
    double[] values = doubles();
    if (values.length != 1) {
      throw GradwireException.mistake(
          Reason.REASON_RUNTIME,
          "",
          "a Tensor with %d elements cannot be converted to Scalar",
          values.length);
    }
    return values[0];
  }

  // Gradients

  /** Sets a leaf's flag (requires_grad_). Returns this tensor. */
  public Tensor requiresGrad(boolean requires) {
    return send(
        Command.newBuilder()
            .setSetRequiresGrad(
                SetRequiresGradRequest.newBuilder().setTensor(id).setRequiresGrad(requires)));
  }

  /** Makes a non-leaf keep its gradient in the next backward. Returns this tensor. */
  public Tensor retainGrad() {
    return send(Command.newBuilder().setRetainGrad(RetainGradRequest.newBuilder().setTensor(id)));
  }

  /** The gradient. A read of it fails where there is none: see {@link #hasGrad}. */
  public Tensor grad() {
    Tensor made = session.newTensor();
    GradRequest.Builder request = GradRequest.newBuilder().setTensor(id).setId(made.id);
    send(Command.newBuilder().setGrad(request));
    return made;
  }

  /** Asks whether there is a gradient. Waits. */
  public boolean hasGrad() {
    try (Tensor made = session.newTensor()) {
      GradRequest.Builder request = GradRequest.newBuilder().setTensor(id).setId(made.id);
      return ask(Command.newBuilder().setGrad(request)).getGrad().hasGrad();
    }
  }

  /** Sets the gradient; null clears it. */
  public void setGrad(Tensor grad) {
    SetGradRequest.Builder request = SetGradRequest.newBuilder().setTensor(id);
    if (grad != null) {
      request.setGrad(session.own("setGrad", grad).id);
    }
    send(Command.newBuilder().setSetGrad(request));
    Reference.reachabilityFence(grad);
  }

  /** Clears the gradient. */
  public void zeroGrad() {
    setGrad(null);
  }

  /** Makes the tensor share another's values; no graph records it (t.data = data). */
  public void setData(Tensor data) {
    SetDataRequest.Builder request =
        SetDataRequest.newBuilder().setTensor(id).setData(session.own("setData", data).id);
    send(Command.newBuilder().setSetData(request));
    Reference.reachabilityFence(data);
  }

  /**
   * Adds gradients to the leaves that the tensor depends on. It waits only if the session has
   * hooks, which run in this thread.
   */
  public void backward() {
    Autograd.backward(List.of(this));
  }

  /** Does {@link #backward()} with options: {@code loss.backward(o -> o.retainGraph(true))}. */
  public void backward(Consumer<Autograd.Options> options) {
    Autograd.backward(List.of(this), options);
  }

  /**
   * Calls a function with the tensor's gradient in every backward that computes it. It returns
   * another gradient, or null to leave it. An exception ends the backward, which throws it.
   */
  public Hook registerHook(UnaryOperator<Tensor> function) {
    return session.hooks.register(this, HookKind.HOOK_KIND_TENSOR, function);
  }

  /** Calls a function with the leaf after a backward has added to its gradient. */
  public Hook registerPostAccumulateGradHook(Consumer<Tensor> function) {
    UnaryOperator<Tensor> hook =
        leaf -> {
          function.accept(leaf);
          return null;
        };
    return session.hooks.register(this, HookKind.HOOK_KIND_ACCUMULATED, hook);
  }

  // Parts

  /** Takes a part: {@code t.index(Index.at(0), Index.range(1, 3))} is t[0, 1:3]. */
  public Tensor index(Index... items) {
    return new Call(session, "getitem").tensor("", this).index("", items).one();
  }

  /** Takes one position of the first dimension: t[position]. */
  public Tensor get(long position) {
    return index(Index.at(position));
  }

  /** Assigns to a part: t[items] = value. Returns this tensor. */
  public Tensor setIndex(Tensor value, Index... items) {
    Call call = new Call(session, "setitem_").tensor("", this).index("", items);
    return call.tensor("", value).inPlace();
  }

  /** Assigns a number to a part: t[items] = value. Returns this tensor. */
  public Tensor setIndex(Number value, Index... items) {
    Call call = new Call(session, "setitem_").tensor("", this).index("", items);
    return call.number("", value).inPlace();
  }

  // Commands

  Tensor send(Command.Builder command) {
    session.sink.send(command);
    Reference.reachabilityFence(this);
    return this;
  }

  Result ask(Command.Builder command) {
    Result result = session.ask(command.build());
    Reference.reachabilityFence(this);
    return result;
  }

  /** Names the tensor; it does not read the values. */
  @Override
  public String toString() {
    return "Tensor(id=" + id + ")";
  }
}
