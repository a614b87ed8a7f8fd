package io.github.gradwire;

import io.github.gradwire.v1.Argument;
import io.github.gradwire.v1.Command;
import io.github.gradwire.v1.DoubleList;
import io.github.gradwire.v1.GradMode;
import io.github.gradwire.v1.IntList;
import io.github.gradwire.v1.NoneValue;
import io.github.gradwire.v1.OpRequest;
import io.github.gradwire.v1.Reason;
import io.github.gradwire.v1.Result;
import io.github.gradwire.v1.TensorList;
import java.lang.ref.Reference;
import java.util.ArrayList;
import java.util.List;

/**
 * Collects the arguments of an op. The typed methods use it; use it for an op whose name is known
 * only at run time: {@code session.call("add").tensor("", a).number("", 1).one()}.
 *
 * <p>An argument's name is empty where the place tells it.
 */
public final class Call {
  private static final byte NONE = 0;
  private static final byte TENSOR = 1;
  private static final byte TENSORS = 2;
  private static final byte FLOAT = 3;
  private static final byte INTEGER = 4;
  private static final byte BOOLEAN = 5;
  private static final byte STRING = 6;
  private static final byte DTYPE = 7;
  private static final byte INTEGERS = 8;
  private static final byte FLOATS = 9;
  private static final byte COMPLEX = 10;
  private static final byte INDEX = 11;
  private static final byte NUMBER = 12;
  private static final NoneValue NO_VALUE = NoneValue.getDefaultInstance();

  /**
   * An argument. Ids and floats are in `bits`, so that a prepared call is made without a message.
   */
  private record Arg(String name, byte kind, long bits, Object value) {}

  private final String op;
  private final List<Arg> args = new ArrayList<>(4);
  private Session session;
  private Tensor first;

  Call(Session session, String op) {
    this.session = session;
    this.op = op;
  }

  private Call add(String name, byte kind, long bits, Object value) {
    args.add(new Arg(name, kind, bits, value));
    return this;
  }

  /** Checks that a tensor is of the call's session, and returns its id. */
  private long id(String name, Tensor tensor) {
    if (session == null) {
      session = tensor.session();
    } else if (session != tensor.session()) {
      throw GradwireException.mistake(
          Reason.REASON_ARGUMENT_VALUE, op, "%s: the tensor belongs to another session", name);
    }
    return tensor.id();
  }

  /** Adds a tensor; null is None. */
  public Call tensor(String name, Tensor tensor) {
    if (tensor == null) {
      return none(name);
    }
    if (first == null) {
      first = tensor;
    }
    return add(name, TENSOR, id(name, tensor), tensor);
  }

  /** Adds a list of tensors. */
  public Call tensors(String name, List<Tensor> tensors) {
    tensors.forEach(each -> id(name, each));
    return add(name, TENSORS, 0, List.copyOf(tensors));
  }

  /** Adds a number of any kind; null is None. */
  public Call number(String name, Number value) {
    if (value == null) {
      return none(name);
    }
    if (value instanceof Double || value instanceof Float) {
      return real(name, value.doubleValue());
    }
    if (value instanceof Long
        || value instanceof Integer
        || value instanceof Short
        || value instanceof Byte) {
      return integer(name, value.longValue());
    }
    if (value instanceof Complex) {
      return add(name, COMPLEX, 0, value);
    }
    if (value instanceof ProgramNumber number) {
      return add(name, NUMBER, number.place, null);
    }
    throw GradwireException.mistake(
        Reason.REASON_ARGUMENT_TYPE,
        op,
        "%s must be a tensor or a number, not %s",
        name,
        value.getClass().getSimpleName());
  }

  /** Adds None. */
  public Call none(String name) {
    return add(name, NONE, 0, null);
  }

  /** Adds a floating-point number. */
  public Call real(String name, double value) {
    return add(name, FLOAT, Double.doubleToRawLongBits(value), null);
  }

  /** Adds an integer. */
  public Call integer(String name, long value) {
    return add(name, INTEGER, value, null);
  }

  /** Adds true or false. */
  public Call bool(String name, boolean value) {
    return add(name, BOOLEAN, value ? 1 : 0, null);
  }

  /** Adds a string; null is None. */
  public Call string(String name, String value) {
    return value == null ? none(name) : add(name, STRING, 0, value);
  }

  /** Adds an element type; null is None. */
  public Call dtype(String name, DType value) {
    return value == null ? none(name) : add(name, DTYPE, value.proto.getNumber(), null);
  }

  /** Adds a list of integers; null is None. */
  public Call integers(String name, long... values) {
    return values == null ? none(name) : add(name, INTEGERS, 0, values.clone());
  }

  /** Adds a list of floating-point numbers; null is None. */
  public Call reals(String name, double... values) {
    return values == null ? none(name) : add(name, FLOATS, 0, values.clone());
  }

  /** Adds an index expression. */
  public Call index(String name, Index... items) {
    for (Index each : items) {
      if (each.tensor != null) {
        id(name, each.tensor);
      }
    }
    return add(name, INDEX, 0, items.clone());
  }

  /** Applies an op with one result. */
  public Tensor one() {
    return op.endsWith("_") ? inPlace() : several(1)[0];
  }

  /** Applies an op with as many results as given. */
  public Tensor[] several(int results) {
    Session owner = owner();
    Tensor[] made = new Tensor[results];
    for (int i = 0; i < results; i++) {
      made[i] = owner.newTensor();
    }
    owner.sink.op(this, owner.gradMode(), made);
    Reference.reachabilityFence(this);
    return made;
  }

  /** Applies an in-place form, and returns its first tensor. */
  public Tensor inPlace() {
    several(0);
    return first;
  }

  /** Applies an op that returns a list. It waits, because only the answer has the list's length. */
  public List<Tensor> list() {
    Session owner = owner();
    Command command = Command.newBuilder().setOp(request(owner.gradMode(), new Tensor[0])).build();
    Result result = owner.ask(command);
    Reference.reachabilityFence(this);
    return result.getOp().getOutputsList().stream().map(spec -> owner.adopt(spec.getId())).toList();
  }

  private Session owner() {
    if (session == null) {
      throw GradwireException.mistake(
          Reason.REASON_ARGUMENT_TYPE, op, "a call without a session needs a tensor");
    }
    return session;
  }

  /** The call as a message. */
  OpRequest request(GradMode mode, Tensor[] made) {
    OpRequest.Builder request = OpRequest.newBuilder().setOp(op).setGradMode(mode);
    for (Arg each : args) {
      request.addArgs(message(each));
    }
    for (Tensor each : made) {
      request.addOutputs(each.id());
    }
    return request.build();
  }

  private static Argument message(Arg arg) {
    Argument.Builder made = Argument.newBuilder().setName(arg.name);
    switch (arg.kind) {
      case TENSOR -> made.setTensor(arg.bits);
      case TENSORS -> {
        TensorList.Builder ids = TensorList.newBuilder();
        tensorsOf(arg).forEach(each -> ids.addIds(each.id()));
        made.setTensors(ids);
      }
      case FLOAT -> made.setFloat(Double.longBitsToDouble(arg.bits));
      case INTEGER -> made.setInteger(arg.bits);
      case BOOLEAN -> made.setBoolean(arg.bits != 0);
      case STRING -> made.setString((String) arg.value);
      case DTYPE -> made.setDtypeValue((int) arg.bits);
      case INTEGERS -> {
        IntList.Builder list = IntList.newBuilder();
        for (long each : (long[]) arg.value) {
          list.addValues(each);
        }
        made.setIntegers(list);
      }
      case FLOATS -> {
        DoubleList.Builder list = DoubleList.newBuilder();
        for (double each : (double[]) arg.value) {
          list.addValues(each);
        }
        made.setFloats(list);
      }
      case COMPLEX -> {
        Complex value = (Complex) arg.value;
        made.setComplex(
            io.github.gradwire.v1.Complex.newBuilder().setReal(value.real()).setImag(value.imag()));
      }
      case INDEX -> {
        io.github.gradwire.v1.Index.Builder index = io.github.gradwire.v1.Index.newBuilder();
        for (Index each : (Index[]) arg.value) {
          index.addItems(each.item);
        }
        made.setIndex(index);
      }
      case NUMBER -> made.setNumber((int) arg.bits);
      default -> made.setNone(NO_VALUE);
    }
    return made.build();
  }

  @SuppressWarnings("unchecked")
  private static List<Tensor> tensorsOf(Arg arg) {
    return (List<Tensor>) arg.value;
  }

  /**
   * Writes what two calls must have in common to be calls of one prepared op: all but ids and
   * floats. Returns whether the op can be prepared; lists of floats and indices are rare, and sent
   * as they are.
   */
  boolean key(Words key, GradMode mode, int results) {
    key.text(op).put((byte) mode.getNumber()).putLong(results);
    for (Arg each : args) {
      key.put(each.kind).text(each.name);
      switch (each.kind) {
        case TENSOR, FLOAT -> {}
        case TENSORS -> key.putLong(tensorsOf(each).size());
        case STRING -> key.text((String) each.value);
        case INTEGERS -> {
          long[] values = (long[]) each.value;
          key.putLong(values.length);
          for (long value : values) {
            key.putLong(value);
          }
        }
        case FLOATS, COMPLEX, INDEX, NUMBER -> {
          return false;
        }
        default -> key.putLong(each.bits);
      }
    }
    return true;
  }

  /** Writes a prepared call: the op's number, then its places. */
  void words(Words words, int number, Tensor[] made) {
    words.putLong(number);
    for (Arg each : args) {
      switch (each.kind) {
        case TENSOR, FLOAT -> words.putLong(each.bits);
        case TENSORS -> tensorsOf(each).forEach(tensor -> words.putLong(tensor.id()));
        default -> {}
      }
    }
    for (Tensor each : made) {
      words.putLong(each.id());
    }
  }
}
