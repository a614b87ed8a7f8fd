package io.github.gradwire;

import java.util.List;

/**
 * A function with one result, whose derivative the program computes itself
 * (torch.autograd.Function). {@link MultiOutputFunction} has several results.
 *
 * <p>Subclass it and call {@link #apply}. While a graph needs a function's derivative, backwards of
 * the session wait for their end.
 */
public abstract class CustomFunction {
  private final MultiOutputFunction general;

  /**
   * Makes a function.
   *
   * @param name the function's name: "Square" makes nodes named "SquareBackward"
   */
  protected CustomFunction(String name) {
    general =
        new MultiOutputFunction(name) {
          @Override
          protected List<Tensor> forward(Context context, List<Tensor> inputs) {
            return List.of(CustomFunction.this.forward(context, inputs));
          }

          @Override
          protected List<Tensor> backward(Context context, List<Tensor> gradients) {
            return CustomFunction.this.backward(context, gradients.get(0));
          }
        };
  }

  /** What a call of a function keeps for its derivative. */
  public static final class Context {
    private List<Tensor> saved = List.of();

    Context() {}

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
    return general.apply(inputs).get(0);
  }
}
