package io.github.gradwire;

import java.util.Arrays;
import java.util.List;

/**
 * What a tensor must be like to be bound to a program's input. The shape of a sliced input is that
 * of one slice.
 */
public record Input(DType dtype, List<Long> shape, boolean requiresGrad, String device) {
  /** A FLOAT32 tensor without gradient. */
  public static Input of(long... shape) {
    return of(DType.FLOAT32, shape);
  }

  /** A tensor without gradient. */
  public static Input of(DType dtype, long... shape) {
    return new Input(dtype, Arrays.stream(shape).boxed().toList(), false, "");
  }

  /** An input like a tensor. Waits. */
  public static Input like(Tensor tensor) {
    Tensor.Description told = tensor.describe();
    return new Input(told.dtype(), told.shape(), told.requiresGrad(), told.device());
  }
}
