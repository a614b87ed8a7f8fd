"""Cases: names of all kinds."""

import importlib
import math
import sys

from tests.client.compile_cases.table import case, module, run_in


@case
def a_global_number():
    space = run_in("scale = 2.0\ndef step(x): return x * scale")
    return space["step"], lambda: space.update(scale=3.0)


@case
def a_global_of_a_function_that_is_called():
    space = run_in("scale = 2.0\ndef inner(x): return x * scale\ndef step(x): return inner(x)")
    return space["step"], lambda: space.update(scale=3.0)


@case
def a_global_function_that_is_replaced():
    space = run_in("def inner(x): return x * 2\ndef step(x): return inner(x)")
    return space["step"], lambda: space.update(inner=lambda x: x * 3)


@case
def a_global_that_appears_and_hides_a_builtin():
    space = run_in("def step(x): return x * max(1.0, 2.0)")
    return space["step"], lambda: space.update(max=min)


@case
def a_global_that_is_deleted():
    text = "scale = 2.0\ndef step(x):\n  try: return x * scale\n  except NameError: return x"
    space = run_in(text)
    return space["step"], lambda: space.pop("scale")


@case
def a_global_that_is_read_by_its_name_in_globals():
    space = run_in("scale = 2.0\ndef step(x): return x * globals()['scale']")
    return space["step"], lambda: space.update(scale=3.0)


@case
def a_global_read_by_eval():
    space = run_in("scale = 2.0\ndef step(x): return x * eval('scale')")
    return space["step"], lambda: space.update(scale=3.0)


@case
def a_global_read_by_exec():
    space = run_in("scale = 2.0\ndef step(x):\n  out = {}\n  exec('y = scale', globals(), out)\n  return x * out['y']")
    return space["step"], lambda: space.update(scale=3.0)


@case
def a_closed_over_number():
    scale = 2.0

    def step(x):
        return x * scale

    def change():
        nonlocal scale
        scale = 3.0

    return step, change


@case
def a_closed_over_number_two_functions_away():
    scale = 2.0

    def inner():
        return scale

    def middle():
        return inner()

    def change():
        nonlocal scale
        scale = 3.0

    return (lambda x: x * middle()), change


@case
def a_closed_over_name_of_a_generator_expression():
    scale = 2.0

    def step(x):
        return x * sum(scale * k for k in range(3))

    def change():
        nonlocal scale
        scale = 3.0

    return step, change


@case
def a_name_that_is_bound_later():
    def step(x):
        try:
            return x * later
        except NameError:
            return x

    def change():
        nonlocal later
        later = 3.0

    if not step:
        later = 1.0
    return step, change


@case
def a_cell_that_is_written_from_outside():
    scale = 2.0

    def step(x):
        return x * scale

    def change():
        step.__closure__[0].cell_contents = 5.0

    return step, change


@case
def a_default_argument_that_is_a_list():
    scales = [2.0]

    def step(x, scales=scales):
        return x * scales[0]

    return step, lambda: scales.__setitem__(0, 3.0)


@case
def a_default_argument_of_an_inner_function():
    held = {"a": 2.0}

    def inner(x, held=held):
        return x * held["a"]

    return (lambda x: inner(x)), lambda: held.update(a=3.0)


@case
def defaults_that_are_replaced():
    def step(x, scale=2.0):
        return x * scale

    return step, lambda: setattr(step, "__defaults__", (3.0,))


@case
def keyword_defaults_that_are_replaced():
    def step(x, *, scale=2.0):
        return x * scale

    return step, lambda: setattr(step, "__kwdefaults__", {"scale": 3.0})


@case
def code_that_is_replaced():
    def step(x):
        return x * 2

    def other(x):
        return x * 3

    return step, lambda: setattr(step, "__code__", other.__code__)


@case
def code_of_an_inner_function_that_is_replaced():
    def inner(x):
        return x * 2

    def other(x):
        return x * 3

    return (lambda x: inner(x)), lambda: setattr(inner, "__code__", other.__code__)


@case
def a_functions_attribute():
    def step(x):
        return x * step.scale

    step.scale = 2.0
    return step, lambda: setattr(step, "scale", 3.0)


@case
def an_attribute_of_another_function():
    def held():
        return None

    held.scale = 2.0
    return (lambda x: x * held.scale), lambda: setattr(held, "scale", 3.0)


@case
def a_builtin_that_is_replaced():
    space = run_in("def step(x): return x * abs(-2.0)")
    import builtins

    old = abs

    def change():
        space["__builtins__"] = builtins
        space["abs"] = lambda x: old(x) + 1

    return space["step"], change


@case
def a_module_global_that_is_a_list():
    space = run_in("scales = [2.0]\ndef step(x):\n  for s in scales: x = x * s\n  return x")
    return space["step"], lambda: space["scales"].append(3.0)


@case
def an_import_inside():
    sys.modules["made_up_settings"] = module("made_up_settings", scale=2.0)

    def step(x):
        import made_up_settings

        return x * made_up_settings.scale

    return step, lambda: setattr(sys.modules["made_up_settings"], "scale", 3.0)


@case
def an_import_of_a_name_inside():
    sys.modules["made_up_values"] = module("made_up_values", scale=2.0)

    def step(x):
        from made_up_values import scale

        return x * scale

    return step, lambda: setattr(sys.modules["made_up_values"], "scale", 3.0)


@case
def a_module_that_is_exchanged_under_its_name():
    sys.modules["made_up_other"] = module("made_up_other", scale=2.0)

    def step(x):
        import made_up_other

        return x * made_up_other.scale

    return step, lambda: sys.modules.update(made_up_other=module("made_up_other", scale=3.0))


@case
def an_import_by_importlib():
    sys.modules["made_up_third"] = module("made_up_third", scale=2.0)

    def step(x):
        return x * importlib.import_module("made_up_third").scale

    return step, lambda: setattr(sys.modules["made_up_third"], "scale", 3.0)


@case
def sys_modules():
    sys.modules["made_up_fourth"] = module("made_up_fourth", scale=2.0)

    def step(x):
        return x * sys.modules["made_up_fourth"].scale

    return step, lambda: setattr(sys.modules["made_up_fourth"], "scale", 3.0)


@case
def a_modules_attribute():
    config = module(scale=2.0)
    return (lambda x: x * config.scale), lambda: setattr(config, "scale", 3.0)


@case
def a_modules_attribute_by_getattr():
    config = module(scale=2.0)
    name = "scale"
    return (lambda x: x * getattr(config, name)), lambda: setattr(config, "scale", 3.0)


@case
def a_modules_attribute_by_vars():
    config = module(scale=2.0)
    return (lambda x: x * vars(config)["scale"]), lambda: setattr(config, "scale", 3.0)


@case
def a_modules_module():
    package = module(sub=module(scale=2.0))
    return (lambda x: x * package.sub.scale), lambda: setattr(package.sub, "scale", 3.0)


@case
def a_modules_function():
    config = module()
    exec("scale = 2.0\ndef get(): return scale", config.__dict__)
    return (lambda x: x * config.get()), lambda: setattr(config, "scale", 3.0)


@case
def a_modules_getattr():
    config = module()
    exec("held = {'scale': 2.0}\ndef __getattr__(name): return held[name]", config.__dict__)
    return (lambda x: x * config.scale), lambda: config.held.update(scale=3.0)


@case
def a_modules_getattr_that_is_hidden():
    config = module()
    exec("def __getattr__(name): return 2.0", config.__dict__)
    return (lambda x: x * config.scale), lambda: setattr(config, "scale", 3.0)


@case
def a_constant_of_math():
    made = module("math", pi=math.pi, sin=math.sin)
    return (lambda x: x * made.sin(made.pi / 2)), lambda: setattr(made, "pi", 3.0)
