"""Cases: iterators, generators, clocks, chance, files: what cannot be compared."""

import contextvars
import functools
import gc
import inspect
import io
import itertools
import json
import logging
import os
import pickle
import queue
import random
import statistics
import string
import sys
import tempfile
import threading
import time
import weakref

import numpy as np

import gradwire
import gradwire.nn.functional as F
from tests.client.compile_cases.table import Holder, case, module


@case
def an_iterator():
    held = iter([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    return (lambda x: x * next(held)), lambda: None


@case
def an_iterator_in_an_object():
    held = Holder(turns=itertools.count(1))
    return (lambda x: x * next(held.turns)), lambda: next(held.turns)


@case
def an_iterator_in_a_list():
    held = [itertools.cycle([1.0, 2.0])]
    return (lambda x: x * next(held[0])), lambda: next(held[0])


@case
def a_generator():
    def numbers():
        yield from range(1, 20)

    held = numbers()
    return (lambda x: x * next(held)), lambda: next(held)


@case
def a_generator_that_is_sent_to():
    def numbers():
        value = 1.0
        while True:
            value = (yield value) or value

    held = numbers()
    next(held)
    return (lambda x: x * held.send(None)), lambda: held.send(5.0)


@case
def an_iterator_that_is_unpacked():
    held = Holder(turns=iter([(1.0,), (2.0,), (3.0,), (4.0,), (5.0,), (6.0,)]))

    def step(x):
        for (value,) in held.turns:
            return x * value
        return x

    return step, lambda: None


@case
def an_iterator_among_the_arguments():
    held = iter(range(1, 100))
    return (lambda x, turns: x * next(turns)), lambda: next(held), lambda: (gradwire.ones(2), held)


@case
def a_zip_of_lists():
    a, b = [1.0, 2.0], [3.0, 4.0]

    def step(x):
        for one, other in zip(a, b, strict=True):
            x = x * one + other
        return x

    return step, lambda: b.__setitem__(0, 9.0)


@case
def a_maps_iterator():
    held = map(float, itertools.count(1))
    return (lambda x: x * next(held)), lambda: None


@case
def an_object_that_is_its_own_iterator():
    class Turns:
        def __init__(self):
            self.at = 0.0

        def __next__(self):
            self.at += 1
            return self.at

    held = Turns()
    return (lambda x: x * next(held)), lambda: None


@case
def pythons_random():
    random.seed(3)
    return (lambda x: x * random.random()), lambda: random.seed(4)


@case
def a_random_object():
    held = random.Random(3)
    return (lambda x: x * held.uniform(1.0, 2.0)), lambda: held.seed(4)


@case
def a_random_choice():
    random.seed(5)
    return (lambda x: x * random.choice([1.0, 2.0, 3.0, 4.0])), lambda: random.seed(6)


@case
def a_bound_random():
    random.seed(7)
    draw = random.random
    return (lambda x: x * draw()), lambda: None


@case
def numpys_random():
    np.random.seed(3)
    return (lambda x: x * float(np.random.rand())), lambda: np.random.seed(4)


@case
def a_numpy_generator():
    held = np.random.default_rng(3)
    return (lambda x: x * float(held.random())), lambda: held.random()


@case
def a_numpy_permutation():
    np.random.seed(3)
    return (lambda x: x[gradwire.tensor(np.random.permutation(3))]), lambda: None


@case
def gradwires_own_chance():
    return (lambda x: x + gradwire.rand(3)), lambda: gradwire.manual_seed(9)


@case
def dropout_seeded_between():
    return (lambda x: F.dropout(x, 0.5)), lambda: gradwire.manual_seed(11), lambda: (gradwire.ones(64),)


@case
def a_clock():
    ticks = itertools.count(1)
    made = module("time", time=lambda: float(next(ticks)))
    return (lambda x: x * made.time()), lambda: None


@case
def time_that_passes():
    begun = time.monotonic()
    return (lambda x: x * (time.monotonic() < begun - 1 or len(str(time.time())) < 0)), lambda: None


@case
def the_environment():
    os.environ["MADE_UP"] = "2"
    return (lambda x: x * float(os.environ["MADE_UP"])), lambda: os.environ.update(MADE_UP="3")


@case
def the_environment_by_getenv():
    os.environ.pop("MADE_UP_B", None)
    return (lambda x: x * float(os.getenv("MADE_UP_B", "2"))), lambda: os.environ.update(MADE_UP_B="3")


@case
def a_file():
    folder = tempfile.mkdtemp()
    path = os.path.join(folder, "scale")

    def write(text):
        with open(path, "w") as file:
            file.write(text)

    write("2")

    def step(x):
        with open(path) as file:
            return x * float(file.read())

    return step, lambda: write("3")


@case
def whether_a_file_is_there():
    path = os.path.join(tempfile.mkdtemp(), "flag")
    return (lambda x: x * 2 if os.path.exists(path) else x), lambda: open(path, "w").close()


@case
def a_stream():
    held = io.StringIO("1\n2\n3\n4\n5\n6\n7\n")
    return (lambda x: x * float(held.readline())), lambda: held.readline()


@case
def a_streams_lines():
    held = io.StringIO("1\n2\n3\n4\n5\n6\n7\n")

    def step(x):
        for line in held:
            return x * float(line)
        return x

    return step, lambda: None


@case
def a_queue():
    held = queue.Queue()
    for value in range(1, 9):
        held.put(value)
    return (lambda x: x * held.get()), lambda: held.get()


@case
def command_line_arguments():
    old = sys.argv
    return (
        (lambda x: x * len(sys.argv)),
        lambda: setattr(sys, "argv", [*old, "more"]),
        None,
        lambda: setattr(sys, "argv", old),
    )


@case
def the_recursion_limit():
    old = sys.getrecursionlimit()
    count = itertools.count(1)
    return (lambda x: x * sys.getrecursionlimit()), lambda: sys.setrecursionlimit(old + 0 * next(count))


@case
def the_callers_frame():
    held = [2.0]

    def step(x):
        return x * sys._getframe(0).f_code.co_argcount * held[0]

    return step, lambda: held.__setitem__(0, 3.0)


@case
def the_stack_by_inspect():
    held = [2.0]

    def step(x):
        return x * len(inspect.signature(step).parameters) * held[0]

    return step, lambda: held.__setitem__(0, 3.0)


@case
def a_thread_local():
    held = threading.local()
    held.scale = 2.0
    return (lambda x: x * held.scale), lambda: setattr(held, "scale", 3.0)


@case
def a_context_variable():
    held = contextvars.ContextVar("held", default=2.0)
    return (lambda x: x * held.get()), lambda: held.set(3.0)


@case
def a_context_variables_list():
    inner = [2.0]
    held = contextvars.ContextVar("held_list", default=inner)
    return (lambda x: x * held.get()[0]), lambda: inner.__setitem__(0, 3.0)


@case
def a_weak_reference():
    held = Holder(one=Holder())
    reference = weakref.ref(held.one)

    def change():
        del held.one
        gc.collect()

    return (lambda x: x * 2 if reference() is None else x), change


@case
def a_weak_dictionary():
    keys = [Holder()]
    held = weakref.WeakKeyDictionary({keys[0]: 2.0})

    def change():
        keys.clear()
        gc.collect()

    return (lambda x: x * (1 + len(held))), change


@case
def a_weak_proxy():
    inner = Holder(scale=2.0)
    proxy = weakref.proxy(inner)
    return (lambda x: x * proxy.scale), lambda: setattr(inner, "scale", 3.0)


@case
def a_lock():
    held = threading.Lock()
    return (lambda x: x * 2 if held.locked() else x), lambda: held.acquire()


@case
def an_event():
    held = threading.Event()
    return (lambda x: x * 2 if held.is_set() else x), held.set


@case
def a_cached_function_whose_cache_is_cleared():
    scale = [2.0]

    @functools.lru_cache
    def get():
        return scale[0]

    def change():
        scale[0] = 3.0
        get.cache_clear()

    return (lambda x: x * get()), change


@case
def a_loggers_level():
    held = logging.getLogger("made_up")
    held.setLevel(logging.INFO)
    return (lambda x: x * held.level), lambda: held.setLevel(logging.ERROR if held.level != 40 else 10)


@case
def a_pickle():
    held = Holder(scale=2.0)
    return (lambda x: x * pickle.loads(pickle.dumps(held.__dict__))["scale"]), lambda: setattr(held, "scale", 3.0)


@case
def a_text_of_json():
    held = {"scale": 2.0}
    return (lambda x: x * json.loads(json.dumps(held))["scale"]), lambda: held.update(scale=3.0)


@case
def a_text_that_is_formatted():
    held = Holder(scale=2.0)
    return (lambda x: x * float(f"{held.scale}")), lambda: setattr(held, "scale", 3.0)


@case
def a_repr():
    class Shown:
        def __init__(self):
            self.value = 2.0

        def __repr__(self):
            return str(self.value)

    held = Shown()
    return (lambda x: x * float(f"{held!r}")), lambda: setattr(held, "value", 3.0)


@case
def a_template():
    held = string.Template("2")
    return (lambda x: x * float(held.substitute())), lambda: setattr(held, "template", "3")


@case
def a_mean_of_a_list():
    held = [1.0, 3.0]
    return (lambda x: x * statistics.fmean(held)), lambda: held.append(8.0)
