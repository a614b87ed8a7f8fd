package io.github.gradwire.examples;

import io.github.gradwire.Functional;
import io.github.gradwire.GradModeScope;
import io.github.gradwire.Gradwire;
import io.github.gradwire.Session;
import io.github.gradwire.Tensor;
import io.github.gradwire.TensorScope;
import java.util.List;

/** Fits y = w x + b to points, with every tensor on a server. */
public final class LineFit {
  private LineFit() {}

  /** Takes the server's address; the default is 127.0.0.1:50051. */
  public static void main(String[] args) {
    double[] found = fit(args.length > 0 ? args[0] : "127.0.0.1:50051");
    System.out.printf("y = %.3f x + %.3f%n", found[0], found[1]);
  }

  /** Returns slope and intercept. */
  static double[] fit(String address) {
    try (Session session = Gradwire.connect(address)) {
      Tensor x = session.tensor(new float[] {0, 1, 2, 3});
      Tensor y = session.tensor(new float[] {-1, 2, 5, 8});
      Tensor w = session.scalar(0).requiresGrad(true);
      Tensor b = session.scalar(0).requiresGrad(true);
      for (int step = 0; step < 300; step++) {
        try (TensorScope scope = session.scope()) {
          Functional.mseLoss(x.mul(w).add(b), y).backward();
          try (GradModeScope mode = session.noGrad()) {
            for (Tensor parameter : List.of(w, b)) {
              parameter.subInPlace(parameter.grad(), o -> o.alpha(0.1));
              parameter.zeroGrad();
            }
          }
        }
      }
      return new double[] {w.item(), b.item()};
    }
  }
}
