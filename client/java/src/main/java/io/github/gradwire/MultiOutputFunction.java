package io.github.gradwire;

import io.github.gradwire.CustomFunction.Context;
import io.github.gradwire.v1.Command;
import io.github.gradwire.v1.GradMode;
import io.github.gradwire.v1.HookCall;
import io.github.gradwire.v1.Reason;
import io.github.gradwire.v1.RecordFunctionRequest;
import java.lang.ref.Reference;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;

/** A {@link CustomFunction} with any number of results. */
public abstract class MultiOutputFunction {
  private final String name;

  /**
   * Makes a function.
   *
   * @param name the function's name: "Square" makes nodes named "SquareBackward"
   */
  protected MultiOutputFunction(String name) {
    this.name = name;
  }

  /** Computes the results. No graph is recorded. It returns new tensors, not inputs. */
  protected abstract List<Tensor> forward(Context context, List<Tensor> inputs);

  /**
   * Computes the gradient of each input from those of the results; null for none. The gradient of a
   * result that is not used is zeros.
   */
  protected abstract List<Tensor> backward(Context context, List<Tensor> gradients);

  /** Calls the function. */
  public final List<Tensor> apply(Tensor... inputs) {
    List<Tensor> given = List.of(inputs);
    Session session = Autograd.sessionOf(name, given);
    Context context = new Context();
    List<Tensor> made;
    GradMode mode = session.gradMode();
    boolean inference = mode == GradMode.GRAD_MODE_INFERENCE;
    try (GradModeScope scope = inference ? session.inferenceMode() : session.noGrad()) {
      made = List.copyOf(forward(context, given));
    }
    if (made.stream().anyMatch(given::contains)) {
      throw GradwireException.mistake(
          Reason.REASON_NOT_SUPPORTED, name, "forward returned an input; return a new tensor");
    }
    for (List<Tensor> each : List.of(made, context.saved())) {
      each.forEach(tensor -> session.own(name, tensor)); // an id means another tensor elsewhere
    }
    if (inference || mode == GradMode.GRAD_MODE_DISABLED) {
      return made; // an op records nothing there either
    }
    int count = inputs.length;
    long hook = session.hooks.add(due -> gradients(session, due, count));
    RecordFunctionRequest.Builder request =
        RecordFunctionRequest.newBuilder()
            .setHook(hook)
            .setName(name + "Backward")
            .addAllInputs(Autograd.ids(given))
            .addAllOutputs(Autograd.ids(made))
            .addAllSaved(Autograd.ids(context.saved()));
    session.sink.send(Command.newBuilder().setRecordFunction(request));
    Reference.reachabilityFence(context.saved());
    Reference.reachabilityFence(given);
    return made;
  }

  /** Answers a stop of a backward at the function. */
  private Tensor[] gradients(Session session, HookCall due, int count) {
    List<Tensor> given = Arrays.asList(session.hooks.adopted(due.getGradientsList()));
    Context context = new Context();
    context.save(session.hooks.adopted(due.getOthersList()));
    List<Tensor> found = backward(context, Collections.unmodifiableList(given));
    if (found.size() != count) {
      throw GradwireException.mistake(
          Reason.REASON_RUNTIME,
          "",
          "function %sBackward returned an incorrect number of gradients (expected %d, got %d)",
          name,
          count,
          found.size());
    }
    return found.stream()
        .map(each -> each == null ? null : session.own(name, each))
        .toArray(Tensor[]::new);
  }
}
