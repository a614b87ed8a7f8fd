package io.github.gradwire;

import io.github.gradwire.v1.Command;
import io.github.gradwire.v1.HookCall;
import io.github.gradwire.v1.Reason;
import io.github.gradwire.v1.RecordFunctionRequest;
import java.lang.ref.Reference;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;

/**
 * A function with one result, whose derivative the program computes itself
 * (torch.autograd.Function).
 *
 * <p>Subclass it and call {@link #apply}. While a graph needs a function's derivative, backwards of
 * the session wait for their end.
 */
public abstract class CustomFunction {
  private final String name;

  /**
   * Makes a function.
   *
   * @param name the function's name: "Square" makes nodes named "SquareBackward"
   */
  protected CustomFunction(String name) {
    this.name = name;
  }

  /** What a call of a function keeps for its derivative. */
  public static final class Context {
    private List<Tensor> saved = List.of();

    private Context() {}

    /** Keeps inputs, results or other tensors. Call it in forward. */
    public void save(Tensor... tensors) {
      saved = List.of(tensors);
    }

    /** The kept tensors, with their history. */
    public List<Tensor> saved() {
      return saved;
    }
  }

  /** Computes the result. No graph is recorded. It returns a new tensor, not an input. */
  protected abstract Tensor forward(Context context, List<Tensor> inputs);

  /** Computes the gradient of each input from that of the result; null for none. */
  protected abstract List<Tensor> backward(Context context, Tensor gradient);

  /** Calls the function. */
  public final Tensor apply(Tensor... inputs) {
    List<Tensor> given = List.of(inputs);
    Session session = Autograd.sessionOf(name, given);
    Context context = new Context();
    Tensor made;
    try (GradModeScope mode = session.noGrad()) {
      made = forward(context, given);
    }
    if (given.contains(made)) {
      throw GradwireException.mistake(
          Reason.REASON_NOT_SUPPORTED, name, "forward returned an input; return a new tensor");
    }
    int count = inputs.length;
    long hook = session.hooks.add(due -> gradients(session, due, count));
    RecordFunctionRequest.Builder request =
        RecordFunctionRequest.newBuilder()
            .setHook(hook)
            .setName(name + "Backward")
            .addAllInputs(Autograd.ids(given))
            .addOutputs(made.id())
            .addAllSaved(Autograd.ids(context.saved));
    session.sink.send(Command.newBuilder().setRecordFunction(request));
    Reference.reachabilityFence(context.saved);
    Reference.reachabilityFence(given);
    return made;
  }

  /** Answers a stop of a backward at the function. */
  private Tensor[] gradients(Session session, HookCall due, int count) {
    Tensor gradient = session.hooks.adopted(due.getGradientsList())[0];
    Context context = new Context();
    context.saved =
        Collections.unmodifiableList(Arrays.asList(session.hooks.adopted(due.getOthersList())));
    List<Tensor> found = backward(context, gradient);
    if (found.size() != count) {
      throw GradwireException.mistake(
          Reason.REASON_RUNTIME,
          "",
          "function %sBackward returned an incorrect number of gradients (expected %d, got %d)",
          name,
          count,
          found.size());
    }
    return found.toArray(Tensor[]::new);
  }
}
