package io.github.gradwire;

/** A placeholder for a floating-point number of a program. Its value is known only in a run. */
public final class ProgramNumber extends Number {
  private static final long serialVersionUID = 1L;

  final int place;

  ProgramNumber(int place) {
    this.place = place;
  }

  /** Throws UnsupportedOperationException, as all conversions do. */
  @Override
  public double doubleValue() {
    throw new UnsupportedOperationException("a program's number has a value only in a run");
  }

  @Override
  public float floatValue() {
    return (float) doubleValue();
  }

  @Override
  public int intValue() {
    return (int) doubleValue();
  }

  @Override
  public long longValue() {
    return (long) doubleValue();
  }

  @Override
  public String toString() {
    return "number " + place;
  }
}
