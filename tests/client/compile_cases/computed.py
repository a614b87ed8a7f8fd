"""Cases: names that no instruction looks up: computed ones, and readers found under other names."""

import copy
import dataclasses
import enum
import math
import operator
import string
import sys
import typing

import gradwire
import gradwire.nn as nn
import gradwire.optim as optim
from tests.client.compile_cases.table import Holder, case, module, setting

AG = operator.attrgetter
CP = copy.copy
OPS = {"get": getattr}


@dataclasses.dataclass
class DC:
    scale: float = 2.0
    other: int = 1


@dataclasses.dataclass(frozen=True, slots=True)
class FS:
    scale: float = 2.0


@case
def aliased_getattr_local():
    c = Holder(scale=2.0)

    def f(x, g=getattr):
        return x * g(c, "sc" + "ale")

    return f, setting(c, "scale", 3.0)


@case
def getattr_in_dict():
    c = Holder(scale=2.0)
    return (lambda x: x * OPS["get"](c, "scale")), setting(c, "scale", 3.0)


@case
def getattr_mapped_from_dict():
    c = Holder(scale=2.0)
    return (lambda x: x * next(map(OPS["get"], [c], ["scale"]))), setting(c, "scale", 3.0)


@case
def aliased_attrgetter_class():
    c = Holder(scale=2.0)
    return (lambda x: x * AG("scale")(c)), setting(c, "scale", 3.0)


@case
def aliased_copy_then_dict():
    c = Holder(scale=2.0)
    keep = Holder(v=vars)
    return (lambda x: x * next(iter(keep.v(c).values()))), setting(c, "scale", 3.0)


@case
def dunder_import_computed():
    sys.modules["r3_made"] = module("r3_made", SCALE=2.0)

    def undo():
        sys.modules.pop("r3_made", None)

    return (
        (lambda x: x * __import__("r3_" + "made").SCALE),
        (lambda: setattr(sys.modules["r3_made"], "SCALE", 3.0)),
        None,
        undo,
    )


@case
def computed_class_attr():
    class C:
        scale = 2.0

    return (lambda x: x * getattr(C, "sc" + "ale")), setting(C, "scale", 3.0)


@case
def computed_class_attr_by_instance():
    class C:
        scale = 2.0

    c = C()
    return (lambda x: x * getattr(c, "sc" + "ale")), setting(C, "scale", 3.0)


@case
def computed_base_class_attr():
    class B:
        scale = 2.0

    class C(B):
        pass

    c = C()
    return (lambda x: x * getattr(c, "".join(["sc", "ale"]))), setting(B, "scale", 3.0)


@case
def vars_of_class():
    class C:
        scale = 2.0

    return (lambda x: x * vars(C)["sc" + "ale"]), setting(C, "scale", 3.0)


@case
def class_dict_items():
    class C:
        a = 2.0
        b = 3.0

    return (lambda x: x * sum(v for k, v in C.__dict__.items() if not k.startswith("__"))), setting(C, "b", 5.0)


@case
def computed_meta_attr():
    class M(type):
        scale = 2.0

    class C(metaclass=M):
        pass

    return (lambda x: x * getattr(C, "sc" + "ale")), setting(M, "scale", 3.0)


@case
def computed_module_class():
    class Config:
        scale = 2.0

    m = module("m", Config=Config)
    return (lambda x: x * getattr(m, "Con" + "fig").scale), setting(Config, "scale", 3.0)


@case
def computed_module_class_replaced():
    class Config:
        scale = 2.0

    class Config2:
        scale = 3.0

    m = module("m", Config=Config)
    return (lambda x: x * getattr(m, "Con" + "fig").scale), setting(m, "Config", Config2)


@case
def computed_module_builtin():
    m = module("m", fn=math.sin)
    return (lambda x: x * getattr(m, "f" + "n")(1.0)), setting(m, "fn", math.cos)


@case
def computed_submodule():
    m = module("m", sub=module("m.sub", scale=2.0))
    return (lambda x: x * getattr(m, "s" + "ub").scale), setting(m.sub, "scale", 3.0)


@case
def dataclass_repr():
    c = DC()
    return (lambda x: x * (2.0 if "scale=2" in repr(c) else 3.0)), setting(c, "scale", 3.0)


@case
def dataclass_fstring():
    c = DC()
    return (lambda x: x * (2.0 if "scale=2" in f"{c}" else 3.0)), setting(c, "scale", 3.0)


@case
def asdict_alias():
    c = DC()
    m = Holder(f=dataclasses.asdict)
    return (lambda x: x * sum(m.f(c).values())), setting(c, "scale", 3.0)


@case
def dataclass_fields_default():
    c = DC()
    m = [dataclasses.astuple]
    return (lambda x: x * m[0](c)[0]), setting(c, "scale", 3.0)


@case
def enum_value_by_iteration():
    class Color(enum.Enum):
        RED = 1
        BLUE = 2

    def change():
        Color.RED._value_ = 7

    return (lambda x: x * sum(c.value for c in Color)), change


@case
def enum_value_by_key():
    class Color(enum.Enum):
        RED = 1
        BLUE = 2

    def change():
        Color.RED._value_ = 7

    return (lambda x: x * Color["R" + "ED"].value), change


@case
def enum_mutable_value():
    class Color(enum.Enum):
        RED = [2.0]  # noqa: RUF012
        BLUE = [3.0]  # noqa: RUF012

    return (lambda x: x * Color["R" + "ED"].value[0]), lambda: Color.RED.value.append(Color.RED.value.pop() + 1)


@case
def exec_module_class():
    ns = {"nn": nn, "SCALE": 2.0}
    exec("class M(nn.Module):\n    def forward(self, x):\n        return x * SCALE\n", ns)
    m = ns["M"]()
    return m, lambda: ns.__setitem__("SCALE", 3.0)


@case
def exec_module_class_called():
    ns = {"nn": nn, "SCALE": 2.0}
    exec("class M(nn.Module):\n    def forward(self, x):\n        return x * SCALE\n", ns)
    m = ns["M"]()
    return (lambda x: m(x)), lambda: ns.__setitem__("SCALE", 3.0)


@case
def exec_function_plain():
    ns = {"SCALE": 2.0}
    exec("def f(x):\n    return x * SCALE", ns)
    return ns["f"], lambda: ns.__setitem__("SCALE", 3.0)


@case
def exec_hook():
    ns = {"SCALE": 2.0}
    exec("def h(m, a, out):\n    return out * SCALE", ns)
    m = nn.Identity()
    m.register_forward_hook(ns["h"])
    return (lambda x: m(x)), lambda: ns.__setitem__("SCALE", 3.0)


@case
def protocol_isinstance():
    @typing.runtime_checkable
    class P(typing.Protocol):
        scale: float

    c = Holder(scale=2.0)
    return (lambda x: x * (2.0 if isinstance(c, P) else 3.0)), lambda: c.__dict__.clear()


@case
def setattr_frozen_write_only():
    c = FS()

    def f(x):
        object.__setattr__(c, "scale", 5.0)
        return x * 2

    def change():
        object.__setattr__(c, "scale", 1.0)

    return f, change, None, None, lambda: c.scale


@case
def object_setattr_write_only_dict():
    c = Holder()
    osa = object.__setattr__

    def f(x):
        osa(c, "la" + "st", 5.0)
        return x * 2

    return f, (lambda: setattr(c, "last", 1.0)), None, None, lambda: c.last


@case
def aliased_setattr():
    c = Holder(last=5.0)
    box = [setattr]

    def f(x):
        box[0](c, "la" + "st", 5.0)
        return x * 2

    return f, (lambda: setattr(c, "last", 1.0)), None, None, lambda: c.last


@case
def implicit_dunder_builtin():
    class C(dict):
        __getitem__ = dict.get

    c = C(a=2.0)
    return (lambda x: x * c["a"]), setting(C, "__getitem__", lambda s, k: 5.0)


@case
def getattr_layers():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.a0 = nn.ReLU()
            self.a1 = nn.Tanh()
            self.n = 2

        def forward(self, x):
            for i in range(self.n):
                x = getattr(self, f"a{i}")(x)
            return x

    m = M()
    return m, setting(m, "a1", nn.Sigmoid())


@case
def typing_hints():
    class C:
        a: int

    return (lambda x: x * len(typing.get_type_hints(C))), lambda: C.__annotations__.update(b=int)


@case
def lr_by_computed():
    w = nn.Parameter(gradwire.tensor([1.0, 2.0, 3.0]))
    o = optim.SGD([w], lr=1.0)
    h = Holder(g=getattr)
    return (lambda x: x * h.g(o, "param_" + "groups")[0]["lr"]), lambda: o.param_groups[0].update(lr=0.5)


@case
def str_format_attr():
    c = Holder(scale=2.0)
    return (lambda x: x * float(f"{c.scale}")), setting(c, "scale", 3.0)


@case
def str_format_alias():
    c = Holder(scale=2.0)
    f = "{0.scale}".format
    return (lambda x: x * float(f(c))), setting(c, "scale", 3.0)


@case
def str_format_unbound():
    c = Holder(scale=2.0)
    h = [str.format]
    return (lambda x: x * float(h[0]("{0.scale}", c))), setting(c, "scale", 3.0)


@case
def str_format_mapped():
    c = Holder(scale=2.0)
    return (lambda x: x * float(next(map("{0.scale}".format, [c])))), setting(c, "scale", 3.0)


@case
def bound_getattribute():
    c = Holder(scale=2.0)
    g = c.__getattribute__
    return (lambda x: x * g("scale")), setting(c, "scale", 3.0)


@case
def member_descriptor_get():
    class S:
        __slots__ = ("a",)

    s = S()
    s.a = 2.0
    d = [S.__dict__["a"]]
    return (lambda x: x * d[0].__get__(s)), setting(s, "a", 3.0)


@case
def dict_descriptor():
    c = Holder(scale=2.0)
    d = [Holder.__dict__["__dict__"]]
    return (lambda x: x * d[0].__get__(c)["scale"]), setting(c, "scale", 3.0)


@case
def string_formatter():
    c = Holder(scale=2.0)
    f = string.Formatter()
    return (lambda x: x * float(f.format("{0.scale}", c))), setting(c, "scale", 3.0)
