package io.github.gradwire;

import io.github.gradwire.v1.IndexItem;
import io.github.gradwire.v1.Slice;

/**
 * One item of an index expression: {@code x.index(Index.at(0), Index.range(1, 3))} is x[0, 1:3].
 */
public final class Index {
  final IndexItem item;
  final Tensor tensor;

  private Index(IndexItem.Builder item, Tensor tensor) {
    this.item = item.build();
    this.tensor = tensor;
  }

  /** Selects one position of a dimension; negative ones count from the end. */
  public static Index at(long position) {
    return new Index(IndexItem.newBuilder().setInteger(position), null);
  }

  /** Takes positions from start up to, but not including, stop. */
  public static Index range(long start, long stop) {
    return slice(start, stop, null);
  }

  /** Takes positions from start on. */
  public static Index from(long start) {
    return slice(start, null, null);
  }

  /** Takes positions before stop. */
  public static Index until(long stop) {
    return slice(null, stop, null);
  }

  /** Takes a whole dimension. */
  public static Index all() {
    return slice(null, null, null);
  }

  /** Takes start:stop:step; null stands for a missing bound. */
  public static Index slice(Long start, Long stop, Long step) {
    Slice.Builder slice = Slice.newBuilder();
    if (start != null) {
      slice.setStart(start);
    }
    if (stop != null) {
      slice.setStop(stop);
    }
    if (step != null) {
      slice.setStep(step);
    }
    return new Index(IndexItem.newBuilder().setSlice(slice), null);
  }

  /** Stands for all dimensions that the other items do not name. */
  public static Index ellipsis() {
    return new Index(IndexItem.newBuilder().setEllipsis(true), null);
  }

  /** Adds a dimension of size 1. */
  public static Index newAxis() {
    return new Index(IndexItem.newBuilder().setNewAxis(true), null);
  }

  /** Takes the positions that a tensor of integers lists, or where a tensor of bools is true. */
  public static Index pick(Tensor tensor) {
    return new Index(IndexItem.newBuilder().setTensor(tensor.id()), tensor);
  }
}
