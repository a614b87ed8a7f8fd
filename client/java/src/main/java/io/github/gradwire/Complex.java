package io.github.gradwire;

/** A complex number, as an operand of an op. */
public final class Complex extends Number {
  private static final long serialVersionUID = 1L;

  private final double real;
  private final double imag;

  /** The number real + imag i. */
  public Complex(double real, double imag) {
    this.real = real;
    this.imag = imag;
  }

  /** The real part. */
  public double real() {
    return real;
  }

  /** The imaginary part. */
  public double imag() {
    return imag;
  }

  /** The real part. Throws ArithmeticException if the imaginary part is not 0. */
  @Override
  public double doubleValue() {
    if (imag != 0) {
      throw new ArithmeticException(this + " is not real");
    }
    return real;
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
    return real + (imag < 0 ? "" : "+") + imag + "i";
  }
}
