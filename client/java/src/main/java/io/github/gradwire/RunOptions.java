package io.github.gradwire;

import io.github.gradwire.v1.RunProgramRequest;

/** What a run of a program can do without. */
public final class RunOptions {
  final RunProgramRequest.Builder request;

  RunOptions(RunProgramRequest.Builder request) {
    this.request = request;
  }

  /** The program's numbers: one set for all repetitions, or one set for each. */
  public RunOptions numbers(double... values) {
    for (double each : values) {
      request.addNumbers(each);
    }
    return this;
  }

  /** The number of repetitions. Default 1. */
  public RunOptions repeat(int times) {
    request.setRepeat(times);
    return this;
  }

  /**
   * The inputs, counted from 0, of which each repetition takes the next slice along the first
   * dimension.
   */
  public RunOptions sliced(int... places) {
    for (int each : places) {
      request.addSliced(each);
    }
    return this;
  }

  /** The number of slices to skip at the beginning. Default 0. */
  public RunOptions first(int slices) {
    request.setFirst(slices);
    return this;
  }

  /** Returns the outputs of all repetitions along a new first dimension, not those of the last. */
  public RunOptions stacked() {
    request.setStacked(true);
    return this;
  }
}
