"""Cases: containers."""

import array
import bisect
import collections
import enum
import heapq
import types

import numpy as np

import gradwire
from tests.client.compile_cases.table import Holder, case


@case
def a_lists_item():
    held = [2.0]
    return (lambda x: x * held[0]), lambda: held.__setitem__(0, 3.0)


@case
def a_lists_length():
    held = [2.0]
    return (lambda x: x * len(held)), lambda: held.append(3.0)


@case
def a_lists_order():
    held = [2.0, 3.0]
    return (lambda x: x * held[0] + held[1]), held.reverse


@case
def a_dicts_item():
    held = {"scale": 2.0}
    return (lambda x: x * held["scale"]), lambda: held.update(scale=3.0)


@case
def a_dicts_order():
    held = {"a": 2.0, "b": 3.0}

    def step(x):
        for value in held.values():
            x = x * value + 1
        return x

    return step, lambda: held.update(a=held.pop("a"))


@case
def a_dicts_keys():
    held = {"a": None}
    return (lambda x: x * len("".join(held))), lambda: held.update(bcd=None)


@case
def a_dict_that_gets_a_key_by_get():
    held = {}
    return (lambda x: x * held.get("scale", 2.0)), lambda: held.update(scale=3.0)


@case
def a_dicts_key_of_another_type():
    held = {1: 2.0}

    def step(x):
        (key,) = held
        return x * 2 if key is True else x

    def change():
        held.clear()
        held[True] = 2.0

    return step, change


@case
def an_ordered_dict_moved():
    held = collections.OrderedDict(a=2.0, b=3.0)

    def step(x):
        for value in held.values():
            x = x * value + 1
        return x

    return step, lambda: held.move_to_end("a")


@case
def a_default_dicts_factory():
    held = collections.defaultdict(lambda: 2.0)

    def step(x):
        held.pop("a", None)
        return x * held["a"]

    return step, lambda: setattr(held, "default_factory", lambda: 3.0)


@case
def a_counter():
    held = collections.Counter("aab")
    return (lambda x: x * held["a"]), lambda: held.update("a")


@case
def a_chain_map():
    first, second = {}, {"scale": 2.0}
    held = collections.ChainMap(first, second)
    return (lambda x: x * held["scale"]), lambda: first.update(scale=3.0)


@case
def a_user_dict():
    held = collections.UserDict(scale=2.0)
    return (lambda x: x * held["scale"]), lambda: held.update(scale=3.0)


@case
def a_user_list():
    held = collections.UserList([2.0])
    return (lambda x: x * held[0]), lambda: held.__setitem__(0, 3.0)


@case
def a_set():
    held = {"a"}
    return (lambda x: x * len(held)), lambda: held.add("b")


@case
def a_sets_member():
    held = {2.0}

    def step(x):
        for value in held:
            x = x * value
        return x

    def change():
        held.clear()
        held.add(3.0)

    return step, change


@case
def a_deque():
    held = collections.deque([2.0])
    return (lambda x: x * held[0]), lambda: held.appendleft(3.0)


@case
def a_deque_rotated():
    held = collections.deque([2.0, 3.0])
    return (lambda x: x * held[0]), lambda: held.rotate(1)


@case
def a_bytearray():
    held = bytearray(b"\x02")
    return (lambda x: x * held[0]), lambda: held.__setitem__(0, 3)


@case
def a_memoryview():
    held = bytearray(b"\x02")
    view = memoryview(held)
    return (lambda x: x * view[0]), lambda: held.__setitem__(0, 3)


@case
def an_array():
    held = array.array("d", [2.0])
    return (lambda x: x * held[0]), lambda: held.__setitem__(0, 3.0)


@case
def a_numpy_array():
    held = np.array([2.0])
    return (lambda x: x * float(held[0])), lambda: held.__setitem__(0, 3.0)


@case
def a_numpy_array_as_a_tensor():
    held = np.array([2.0, 3.0, 4.0], dtype=np.float32)
    return (lambda x: x * gradwire.tensor(held)), lambda: held.__setitem__(0, 9.0)


@case
def a_view_of_a_numpy_array():
    held = np.arange(6.0)
    view = held[::2]
    return (lambda x: x * float(view[1])), lambda: held.__setitem__(2, 9.0)


@case
def a_numpy_array_of_objects():
    inner = [2.0]
    held = np.empty(1, dtype=object)
    held[0] = inner
    return (lambda x: x * held[0][0]), lambda: inner.__setitem__(0, 3.0)


@case
def a_numpy_structure():
    held = np.zeros(1, dtype=[("a", "f8")])
    held["a"] = 2.0
    return (lambda x: x * float(held["a"][0])), lambda: held.__setitem__("a", 3.0)


@case
def a_numpy_scalar():
    held = Holder(scale=np.float64(2.0))
    return (lambda x: x * float(held.scale)), lambda: setattr(held, "scale", np.float64(3.0))


@case
def a_tuple_with_a_list_in_it():
    held = (1, [2.0])
    return (lambda x: x * held[1][0]), lambda: held[1].__setitem__(0, 3.0)


@case
def a_named_tuple():
    Config = collections.namedtuple("Config", "scale")
    held = Holder(config=Config(2.0))
    return (lambda x: x * held.config.scale), lambda: setattr(held, "config", Config(3.0))


@case
def a_list_subclass():
    class Values(list):
        pass

    held = Values([2.0])
    return (lambda x: x * held[0]), lambda: held.__setitem__(0, 3.0)


@case
def a_list_subclasss_attribute():
    class Values(list):
        scale = 2.0

    held = Values()
    return (lambda x: x * held.scale), lambda: setattr(held, "scale", 3.0)


@case
def a_dict_subclass_with_attributes():
    class Config(dict):
        def __getattr__(self, name):
            return self[name]

    held = Config(scale=2.0)
    return (lambda x: x * held.scale), lambda: held.update(scale=3.0)


@case
def a_dict_subclass_with_missing():
    class Config(dict):
        default = 2.0

        def __missing__(self, name):
            return self.default

    held = Config()
    return (lambda x: x * held["a"]), lambda: setattr(Config, "default", 3.0)


@case
def a_float_subclass():
    class Scale(float):
        more = 0.0

    held = Scale(2.0)
    return (lambda x: x * float(held) + held.more), lambda: setattr(held, "more", 3.0)


@case
def an_int_enum_exchanged():
    class Size(enum.IntEnum):
        S = 2
        L = 3

    held = [Size.S]
    return (lambda x: x * int(held[0])), lambda: held.__setitem__(0, Size.L)


@case
def a_mapping_proxy():
    held = {"scale": 2.0}
    proxy = types.MappingProxyType(held)
    return (lambda x: x * proxy["scale"]), lambda: held.update(scale=3.0)


@case
def a_view_of_a_dicts_values():
    held = {"scale": 2.0}
    found = held.values()
    return (lambda x: x * next(iter(found))), lambda: held.update(scale=3.0)


@case
def a_list_forty_levels_deep():
    inner = held = [2.0]
    for _ in range(40):
        held = [held]

    def step(x):
        at = held
        while isinstance(at[0], list):
            at = at[0]
        return x * at[0]

    return step, lambda: inner.__setitem__(0, 3.0)


@case
def objects_fifty_levels_deep():
    inner = held = Holder(scale=2.0)
    for _ in range(50):
        held = Holder(inner=held)

    def step(x):
        at = held
        while hasattr(at, "inner"):
            at = at.inner
        return x * at.scale

    return step, lambda: setattr(inner, "scale", 3.0)


@case
def a_list_that_holds_itself():
    held = [2.0]
    held.append(held)
    return (lambda x: x * held[1][1][0]), lambda: held.__setitem__(0, 3.0)


@case
def two_names_of_one_list():
    one = [2.0]
    held = {"a": one, "b": one}

    def step(x):
        return x * 2 if held["a"] is held["b"] else x

    return step, lambda: held.update(b=[2.0])


@case
def a_list_that_is_sorted_inside():
    held = [3.0, 2.0]

    def step(x):
        return x * sorted(held)[1]

    return step, lambda: held.append(1.0)


@case
def a_heap():
    held = [2.0, 3.0]
    heapq.heapify(held)
    return (lambda x: x * heapq.nsmallest(1, held)[0]), lambda: heapq.heappush(held, 1.0)


@case
def a_bisection():
    held = [1.0, 3.0]
    return (lambda x: x * bisect.bisect(held, 2.0)), lambda: held.insert(0, 0.0)
