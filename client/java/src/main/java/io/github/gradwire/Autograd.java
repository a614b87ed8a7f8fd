package io.github.gradwire;

import io.github.gradwire.v1.BackwardRequest;
import io.github.gradwire.v1.Command;
import io.github.gradwire.v1.GradientsRequest;
import io.github.gradwire.v1.Reason;
import io.github.gradwire.v1.TensorSpec;
import java.lang.ref.Reference;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.function.Consumer;

/** Differentiates several tensors at once: torch.autograd. */
public final class Autograd {
  private Autograd() {}

  /** What a backward can do without. */
  public static final class Options {
    private List<Tensor> gradients = List.of();
    private List<Tensor> inputs = List.of();
    private boolean retainGraph;
    private boolean createGraph;
    private boolean checkNan;
    private boolean allowUnused;

    Options() {}

    /**
     * Gradients of the tensors, in order. One of a tensor with one element may be null or missing:
     * then it is 1.
     */
    public Options gradients(List<Tensor> given) {
      gradients = given;
      return this;
    }

    /** The gradient of the one tensor. */
    public Options gradient(Tensor given) {
      return gradients(Collections.singletonList(given));
    }

    /** The only tensors that receive gradients. Only for backward. */
    public Options inputs(List<Tensor> given) {
      inputs = given;
      return this;
    }

    /** Keeps the graph's saved values for another backward. */
    public Options retainGraph(boolean given) {
      retainGraph = given;
      return this;
    }

    /** Makes the gradients themselves differentiable, and keeps the graph. */
    public Options createGraph(boolean given) {
      createGraph = given;
      return this;
    }

    /** Refuses a backward in which a node yields nan. */
    public Options checkNan(boolean given) {
      checkNan = given;
      return this;
    }

    /** Lets grad return null for an input that the outputs do not depend on. */
    public Options allowUnused(boolean given) {
      allowUnused = given;
      return this;
    }
  }

  /** Adds gradients to the leaves that the tensors depend on (torch.autograd.backward). */
  public static void backward(List<Tensor> tensors) {
    backward(tensors, options -> {});
  }

  /** Does {@link #backward(List)} with options. It waits only if the session has hooks. */
  public static void backward(List<Tensor> tensors, Consumer<Options> options) {
    Options given = new Options();
    options.accept(given);
    Session session = sessionOf("backward", tensors, given.gradients, given.inputs);
    BackwardRequest.Builder request =
        BackwardRequest.newBuilder()
            .addAllTensors(ids(tensors))
            .addAllGradients(ids(given.gradients))
            .addAllInputs(ids(given.inputs))
            .setCreateGraph(given.createGraph)
            .setCheckNan(given.checkNan)
            .setAnswersHooks(!session.hooks.isEmpty());
    if (given.retainGraph) {
      request.setRetainGraph(true);
    }
    Command.Builder command = Command.newBuilder().setBackward(request);
    if (session.hooks.isEmpty()) {
      session.sink.send(command);
    } else {
      session.hooks.run(command.build(), given.createGraph);
    }
    Reference.reachabilityFence(tensors);
    Reference.reachabilityFence(given);
  }

  /** Returns the gradients of outputs by inputs, and changes no leaf's (torch.autograd.grad). */
  public static List<Tensor> grad(List<Tensor> outputs, List<Tensor> inputs) {
    return grad(outputs, inputs, options -> {});
  }

  /**
   * Does {@link #grad(List, List)} with options. It waits only if the session has hooks, or with
   * allowUnused.
   */
  public static List<Tensor> grad(
      List<Tensor> outputs, List<Tensor> inputs, Consumer<Options> options) {
    Options given = new Options();
    options.accept(given);
    Session session = sessionOf("grad", outputs, inputs, given.gradients);
    List<Tensor> made = new ArrayList<>();
    for (int i = 0; i < inputs.size(); i++) {
      made.add(session.newTensor());
    }
    GradientsRequest.Builder request =
        GradientsRequest.newBuilder()
            .addAllOutputs(ids(outputs))
            .addAllInputs(ids(inputs))
            .addAllGradOutputs(ids(given.gradients))
            .setCreateGraph(given.createGraph)
            .setAllowUnused(given.allowUnused)
            .setCheckNan(given.checkNan)
            .addAllResults(ids(made))
            .setAnswersHooks(!session.hooks.isEmpty());
    if (given.retainGraph) {
      request.setRetainGraph(true);
    }
    Command.Builder command = Command.newBuilder().setGradients(request);
    if (session.hooks.isEmpty() && !given.allowUnused) {
      session.sink.send(command);
    } else {
      List<TensorSpec> specs = session.hooks.run(command.build(), given.createGraph);
      for (int i = 0; i < specs.size(); i++) {
        if (specs.get(i).getId() == 0) {
          made.set(i, null).close();
        }
      }
    }
    Reference.reachabilityFence(outputs);
    Reference.reachabilityFence(inputs);
    Reference.reachabilityFence(given);
    return Collections.unmodifiableList(made);
  }

  /** The ids of tensors; 0 for null. */
  static List<Long> ids(List<Tensor> tensors) {
    return tensors.stream().map(each -> each == null ? 0L : each.id()).toList();
  }

  /** Checks that tensors are of one session. Nulls are none. */
  @SafeVarargs
  static Session sessionOf(String op, List<Tensor>... lists) {
    Session session = null;
    for (List<Tensor> list : lists) {
      for (Tensor each : list) {
        if (each != null) {
          session = session == null ? each.session() : session.own(op, each).session();
        }
      }
    }
    if (session == null) {
      throw GradwireException.mistake(Reason.REASON_ARGUMENT_VALUE, op, "there is no tensor");
    }
    return session;
  }
}
