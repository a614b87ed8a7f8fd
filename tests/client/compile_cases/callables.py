"""Cases: callables."""

import contextlib
import functools

import gradwire
from tests.client.compile_cases.table import Holder, case


@case
def a_partial():
    held = [2.0]
    return functools.partial(lambda held, x: x * held[0], held), lambda: held.__setitem__(0, 3.0)


@case
def a_partials_keywords():
    def scaled(x, scale):
        return x * scale

    made = functools.partial(scaled, scale=2.0)
    return (lambda x: made(x)), lambda: made.keywords.update(scale=3.0)


@case
def a_partial_method():
    class Model:
        scale = 2.0

        def run(self, x, more):
            return x * self.scale + more

        short = functools.partialmethod(run, more=1.0)

    model = Model()
    return (lambda x: model.short(x)), lambda: setattr(model, "scale", 3.0)


@case
def a_wrapped_function():
    scale = [2.0]

    def decorate(function):
        @functools.wraps(function)
        def inner(*args):
            return function(*args) * scale[0]

        return inner

    @decorate
    def step(x):
        return x + 1

    return step, lambda: scale.__setitem__(0, 3.0)


@case
def a_function_under_no_grad():
    scale = [2.0]

    @gradwire.no_grad()
    def inner(x):
        return x * scale[0]

    return (lambda x: inner(x)), lambda: scale.__setitem__(0, 3.0)


@case
def a_reduction():
    held = [1.0, 2.0]
    return (lambda x: x * functools.reduce(lambda a, b: a + b, held)), lambda: held.append(3.0)


@case
def functions_in_a_table():
    table = {"a": lambda x: x * 2, "b": lambda x: x * 3}
    held = ["a"]
    return (lambda x: table[held[0]](x)), lambda: held.__setitem__(0, "b")


@case
def a_function_of_a_table_that_is_exchanged():
    table = {"a": lambda x: x * 2}
    return (lambda x: table["a"](x)), lambda: table.update(a=lambda x: x * 3)


@case
def a_single_dispatch():
    @functools.singledispatch
    def act(kind, x):
        return x * 2

    held = [1]
    return (lambda x: act(held[0], x)), lambda: act.register(int, lambda kind, x: x * 3)


@case
def a_context_manager_with_state():
    scale = [2.0]

    @contextlib.contextmanager
    def scaled():
        yield scale[0]

    def step(x):
        with scaled() as value:
            return x * value

    return step, lambda: scale.__setitem__(0, 3.0)


@case
def a_call_of_a_compiled_function():
    scale = [2.0]
    inner = gradwire.compile(lambda x: x * scale[0])
    return (lambda x: inner(x) + 1), lambda: scale.__setitem__(0, 3.0)


@case
def recursion_with_a_limit():
    held = Holder(depth=2)

    def go(x, depth):
        return x if depth == 0 else go(x * 2, depth - 1)

    return (lambda x: go(x, held.depth)), lambda: setattr(held, "depth", 3)


@case
def a_sort_by_a_key():
    weights = {"a": 1.0, "b": 2.0}

    def step(x):
        first = sorted(weights, key=lambda name: weights[name])[1]
        return x * weights[first]

    return step, lambda: weights.update(a=5.0)


@case
def a_lambda_in_a_default():
    held = [2.0]

    def step(x, get=lambda: held[0]):
        return x * get()

    return step, lambda: held.__setitem__(0, 3.0)


@case
def a_callable_in_an_object():
    held = Holder(act=lambda x: x * 2)
    return (lambda x: held.act(x)), lambda: setattr(held, "act", lambda x: x * 3)


@case
def a_registry_by_decorator():
    registry = []

    def register(function):
        registry.append(function)
        return function

    register(lambda x: x * 2)

    def step(x):
        for function in registry:
            x = function(x)
        return x

    return step, lambda: register(lambda x: x + 1)
