package io.github.gradwire;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assertions.fail;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonPrimitive;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Locale;
import java.util.Map;

/** Runs a scenario's steps in a session, or records them in that of a program. */
final class ScenarioRunner {
  private final Session session;
  private final Map<String, Tensor> tensors = new HashMap<>();
  private final Map<String, Program> programs = new HashMap<>();
  private final Map<String, Hook> hooks = new HashMap<>();
  private final List<String> called = new ArrayList<>();
  private int round;

  /** What a hook with `fails` throws. */
  private static final class HookException extends RuntimeException {
    private static final long serialVersionUID = 1L;
  }

  ScenarioRunner(Session session) {
    this.session = session;
  }

  /** Runs the steps in order. A step with `refused` must fail. */
  void run(JsonArray steps) throws Exception {
    for (JsonElement each : steps) {
      JsonObject step = each.getAsJsonObject();
      if (step.has("refused")) {
        refused(step);
      } else {
        step(step);
      }
    }
  }

  private void refused(JsonObject step) {
    String expected = text(step, "refused");
    if (expected.equals("DEPENDENCY_FAILED") && !text(step, "do").equals("read")) {
      return; // its cause was reported before
    }
    RuntimeException thrown =
        assertThrows(
            RuntimeException.class,
            () -> {
              step(step);
              session.await();
            },
            step::toString);
    if (expected.equals("HOOK")) {
      assertTrue(thrown instanceof HookException, thrown::toString);
    } else if (!expected.equals("DEPENDENCY_FAILED")) {
      GradwireException refusal = (GradwireException) thrown;
      assertEquals("REASON_" + expected, refusal.reason().name(), step::toString);
      assertFalse(refusal.getMessage().isEmpty(), step::toString);
    }
  }

  private void step(JsonObject step) throws Exception {
    switch (text(step, "do")) {
      case "tensor" -> tensors.put(text(step, "out"), leaf(step));
      case "op" -> op(step);
      case "backward" -> Autograd.backward(several(step.get("tensors")), o -> set(o, step));
      case "gradients" -> gradients(step);
      case "grad" -> tensors.put(text(step, "out"), of(step).grad());
      case "no_grad_of" -> assertFalse(of(step).hasGrad(), step::toString);
      case "set_grad" -> of(step).setGrad(tensors.get(text(step, "to")));
      case "set_data" -> of(step).setData(tensors.get(text(step, "to")));
      case "requires_grad" -> of(step).requiresGrad(flag(step, "to"));
      case "retain_grad" -> of(step).retainGrad();
      case "forget" -> of(step).close();
      case "hook" -> hook(step);
      case "square" -> tensors.put(text(step, "out"), new Square(step).apply(of(step)));
      case "remove_hook" -> hooks.get(text(step, "hook")).remove();
      case "hooks_run" -> {
        assertEquals(strings(step.get("expect")), called);
        called.clear();
      }
      case "read" -> read(step);
      case "describe" -> describe(step);
      case "program" -> program(step);
      case "run" -> runProgram(step);
      case "repeat" -> {
        for (int i = 0; i < step.get("times").getAsInt(); i++) {
          round = i;
          run(step.getAsJsonArray("steps"));
        }
      }
      case "seed" -> session.manualSeed(step.get("seed").getAsLong());
      case "wait" -> session.await();
      case "sleep" -> Thread.sleep((long) (step.get("seconds").getAsDouble() * 1000));
      default -> fail("unknown step " + step);
    }
  }

  private Tensor of(JsonObject step) {
    return tensors.get(text(step, "of"));
  }

  private List<Tensor> several(JsonElement names) {
    return strings(names).stream().map(tensors::get).toList();
  }

  private Tensor leaf(JsonObject step) {
    DType dtype = dtype(text(step, "dtype"));
    long[] shape = integers(step.get("shape"));
    Tensor made;
    if (step.has("ramp")) {
      float[] values = new float[(int) (shape[0] * shape[1])];
      for (int i = 0; i < values.length; i++) {
        values[i] = i % step.get("ramp").getAsInt();
      }
      made = session.tensor(values, shape);
    } else if (step.has("hex")) {
      made = session.fromBytes(dtype, HexFormat.of().parseHex(text(step, "hex")), shape);
    } else if (shape.length == 0) {
      made = session.scalar((float) doubles(step.get("values"))[0]);
    } else if (dtype == DType.INT64) {
      made = session.tensor(integers(step.get("values")), shape);
    } else {
      double[] values = doubles(step.get("values"));
      float[] narrow = new float[values.length];
      for (int i = 0; i < values.length; i++) {
        narrow[i] = (float) values[i];
      }
      made = session.tensor(narrow, shape);
    }
    return flag(step, "requires_grad") ? made.requiresGrad(true) : made;
  }

  private void op(JsonObject step) {
    try (GradModeScope mode =
        switch (text(step, "mode")) {
          case "no_grad" -> session.noGrad();
          case "inference" -> session.inferenceMode();
          default -> session.enableGrad();
        }) {
      String name = text(step, "op");
      Call call = session.call(name);
      for (JsonElement each : list(step.get("args"))) {
        argument(call, "", each.getAsJsonObject());
      }
      if (step.has("named")) {
        step.getAsJsonObject("named")
            .entrySet()
            .forEach(each -> argument(call, each.getKey(), each.getValue().getAsJsonObject()));
      }
      JsonElement out = step.get("out");
      if (out == null) {
        call.inPlace();
      } else if (out.isJsonPrimitive()) {
        tensors.put(out.getAsString(), call.one());
      } else {
        List<String> names = strings(out);
        // ListOps says that only the answer tells how many parts a split has.
        List<Tensor> made =
            name.equals("split") ? call.list() : List.of(call.several(names.size()));
        for (int i = 0; i < names.size(); i++) {
          tensors.put(names.get(i), made.get(i));
        }
      }
    }
  }

  private void argument(Call call, String name, JsonObject given) {
    Map.Entry<String, JsonElement> only = given.entrySet().iterator().next();
    JsonElement value = only.getValue();
    switch (only.getKey()) {
      case "tensor" -> call.tensor(name, tensors.get(value.getAsString()));
      case "tensors" -> call.tensors(name, several(value));
      case "float" -> call.real(name, value.getAsDouble());
      case "integer" -> call.integer(name, value.getAsLong());
      case "boolean" -> call.bool(name, value.getAsBoolean());
      case "string" -> call.string(name, value.getAsString());
      case "dtype" -> call.dtype(name, dtype(value.getAsString()));
      case "integers" -> call.integers(name, integers(value));
      case "floats" -> call.reals(name, doubles(value));
      case "complex" -> call.number(name, new Complex(doubles(value)[0], doubles(value)[1]));
      case "none" -> call.none(name);
      case "round" -> call.real(name, value.getAsDouble() * round);
      case "number" -> call.number(name, new ProgramNumber(value.getAsInt()));
      case "index" ->
          call.index(
              name,
              list(value).stream().map(each -> item(each.getAsJsonObject())).toArray(Index[]::new));
      default -> fail("unknown argument " + given);
    }
  }

  private Index item(JsonObject given) {
    Map.Entry<String, JsonElement> only = given.entrySet().iterator().next();
    JsonElement value = only.getValue();
    return switch (only.getKey()) {
      case "integer" -> Index.at(value.getAsLong());
      case "slice" -> {
        Long[] bounds = new Long[3];
        for (int i = 0; i < 3; i++) {
          JsonElement each = value.getAsJsonArray().get(i);
          bounds[i] = each.isJsonNull() ? null : each.getAsLong();
        }
        yield Index.slice(bounds[0], bounds[1], bounds[2]);
      }
      case "new_axis" -> Index.newAxis();
      case "tensor" -> Index.pick(tensors.get(value.getAsString()));
      default -> Index.ellipsis();
    };
  }

  private Autograd.Options set(Autograd.Options options, JsonObject step) {
    String gradients = step.has("gradients") ? "gradients" : "grad_outputs";
    if (step.get("do").getAsString().equals("backward")) {
      options.inputs(several(step.get("inputs")));
    }
    return options
        .gradients(several(step.get(gradients)))
        .retainGraph(flag(step, "retain_graph"))
        .createGraph(flag(step, "create_graph"))
        .allowUnused(flag(step, "allow_unused"));
  }

  private void gradients(JsonObject step) {
    List<Tensor> inputs = several(step.get("inputs"));
    List<Tensor> found = Autograd.grad(several(step.get("outputs")), inputs, o -> set(o, step));
    List<JsonElement> out = list(step.get("out"));
    for (int i = 0; i < out.size(); i++) {
      assertEquals(out.get(i).isJsonNull(), found.get(i) == null, step.toString());
      if (found.get(i) != null) {
        tensors.put(out.get(i).getAsString(), found.get(i));
      }
    }
  }

  /** Its derivative has a factor of the step. */
  private static final class Square extends CustomFunction {
    private final double factor;

    Square(JsonObject step) {
      super("Square");
      factor = step.get("factor").getAsDouble();
    }

    @Override
    protected Tensor forward(Context context, List<Tensor> inputs) {
      context.save(inputs.get(0));
      return inputs.get(0).mul(inputs.get(0));
    }

    @Override
    protected List<Tensor> backward(Context context, Tensor gradient) {
      return List.of(gradient.mul(context.saved().get(0)).mul(factor));
    }
  }

  private void hook(JsonObject step) {
    String name = text(step, "name");
    Runnable ran =
        () -> {
          called.add(name);
          if (flag(step, "fails")) {
            throw new HookException();
          }
        };
    Hook hook;
    if (text(step, "kind").equals("accumulated")) {
      hook = of(step).registerPostAccumulateGradHook(leaf -> ran.run());
    } else {
      hook =
          of(step)
              .registerHook(
                  gradient -> {
                    ran.run();
                    JsonElement factor = step.get("factor");
                    return factor == null ? null : gradient.mul(factor.getAsDouble());
                  });
    }
    hooks.put(name, hook);
  }

  private void program(JsonObject step) {
    List<String> names = new ArrayList<>();
    List<Input> inputs = new ArrayList<>();
    for (JsonElement each : list(step.get("inputs"))) {
      JsonObject given = each.getAsJsonObject();
      names.add(text(given, "name"));
      Input input = Input.of(dtype(text(given, "dtype")), integers(given.get("shape")));
      inputs.add(
          new Input(input.dtype(), input.shape(), flag(given, "requires_grad"), input.device()));
    }
    Program.Body body =
        (recording, stands, numbers) -> {
          ScenarioRunner inner = new ScenarioRunner(recording);
          for (int i = 0; i < names.size(); i++) {
            inner.tensors.put(names.get(i), stands.get(i));
          }
          try {
            inner.run(step.getAsJsonArray("steps"));
          } catch (RuntimeException failed) {
            throw failed;
          } catch (Exception failed) {
            throw new IllegalStateException(failed);
          }
          return inner.several(step.get("outputs")).stream().map(Tensor::detach).toList();
        };
    int numbers = step.get("numbers").getAsInt();
    programs.put(text(step, "name"), session.trace(inputs, numbers, body));
  }

  private void runProgram(JsonObject step) {
    List<Tensor> made =
        programs
            .get(text(step, "program"))
            .run(
                several(step.get("inputs")),
                options -> {
                  options.numbers(doubles(step.get("numbers")));
                  for (long place : integers(step.get("sliced"))) {
                    options.sliced((int) place);
                  }
                  if (step.has("repeat")) {
                    options.repeat(step.get("repeat").getAsInt());
                  }
                  if (flag(step, "stacked")) {
                    options.stacked();
                  }
                });
    List<String> names = strings(step.get("out"));
    for (int i = 0; i < made.size(); i++) {
      tensors.put(names.get(i), made.get(i));
    }
  }

  private void read(JsonObject step) throws Exception {
    Payload payload = of(step).read();
    JsonObject expected = step.getAsJsonObject("expect");
    assertEquals(dtype(text(expected, "dtype")), payload.dtype(), step::toString);
    assertArrayEquals(integers(expected.get("shape")), payload.shape(), step::toString);
    if (expected.has("sha256")) {
      byte[] sum = MessageDigest.getInstance("SHA-256").digest(payload.bytes());
      assertEquals(text(expected, "sha256"), HexFormat.of().formatHex(sum));
    } else if (expected.has("hex")) {
      assertEquals(text(expected, "hex"), HexFormat.of().formatHex(payload.bytes()));
    } else {
      double tolerance =
          switch (payload.dtype()) {
            case FLOAT32 -> 1e-5;
            case FLOAT64 -> 1e-10;
            default -> 0;
          };
      double[] wanted = doubles(expected.get("values"));
      double[] found = payload.doubles();
      assertEquals(wanted.length, found.length);
      for (int i = 0; i < wanted.length; i++) {
        double allowed = tolerance * Math.max(1, Math.abs(wanted[i]));
        boolean same = Double.compare(found[i] + 0.0, wanted[i] + 0.0) == 0;
        String told = "[%d] is %s instead of %s".formatted(i, found[i], wanted[i]);
        assertTrue(same || Math.abs(found[i] - wanted[i]) <= allowed, told);
      }
    }
  }

  private void describe(JsonObject step) {
    Tensor.Description told = of(step).describe();
    Map<String, Object> found =
        Map.of(
            "dtype", told.dtype(),
            "shape", told.shape(),
            "requires_grad", told.requiresGrad(),
            "is_leaf", told.isLeaf(),
            "grad_fn", told.gradFn(),
            "retains_grad", told.retainsGrad(),
            "is_view", told.isView(),
            "version", told.version());
    step.getAsJsonObject("expect")
        .entrySet()
        .forEach(
            each -> {
              Object value = found.get(each.getKey());
              String compact = value.toString().replace(" ", "");
              String wanted = each.getValue().toString().replace("\"", "");
              assertEquals(wanted, compact, each.getKey());
            });
  }

  private static String text(JsonObject step, String key) {
    JsonElement value = step.get(key);
    return value == null || value.isJsonNull() ? "" : value.getAsString();
  }

  private static boolean flag(JsonObject step, String key) {
    JsonElement value = step.get(key);
    return value instanceof JsonPrimitive && value.getAsBoolean();
  }

  private static List<JsonElement> list(JsonElement values) {
    return values == null || values.isJsonNull() ? List.of() : values.getAsJsonArray().asList();
  }

  private static List<String> strings(JsonElement values) {
    return list(values).stream().map(JsonElement::getAsString).toList();
  }

  static long[] integers(JsonElement values) {
    return list(values).stream().mapToLong(JsonElement::getAsLong).toArray();
  }

  private static double[] doubles(JsonElement values) {
    return list(values).stream().mapToDouble(ScenarioRunner::number).toArray();
  }

  private static double number(JsonElement value) {
    JsonPrimitive primitive = value.getAsJsonPrimitive();
    if (primitive.isBoolean()) {
      return primitive.getAsBoolean() ? 1 : 0;
    }
    return switch (primitive.getAsString()) {
      case "nan" -> Double.NaN;
      case "inf" -> Double.POSITIVE_INFINITY;
      case "-inf" -> Double.NEGATIVE_INFINITY;
      default -> primitive.getAsDouble();
    };
  }

  private static DType dtype(String name) {
    return DType.valueOf(name.toUpperCase(Locale.ROOT));
  }
}
