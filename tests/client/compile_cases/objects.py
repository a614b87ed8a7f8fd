"""Cases: objects."""

import abc
import copy
import dataclasses
import enum
import functools
import operator
import types
import typing

from tests.client.compile_cases.table import Holder, case, run_in


@case
def an_objects_attribute():
    held = Holder(scale=2.0)
    return (lambda x: x * held.scale), lambda: setattr(held, "scale", 3.0)


@case
def an_attribute_that_is_deleted():
    class Config:
        scale = 5.0

    held = Config()
    held.scale = 2.0
    return (lambda x: x * held.scale), lambda: delattr(held, "scale")


@case
def an_attribute_that_hides_the_classs():
    class Config:
        scale = 5.0

    held = Config()
    return (lambda x: x * held.scale), lambda: setattr(held, "scale", 3.0)


@case
def a_class_attribute():
    class Config:
        scale = 2.0

    return (lambda x: x * Config.scale), lambda: setattr(Config, "scale", 3.0)


@case
def a_class_attribute_through_an_object():
    class Config:
        scale = 2.0

    held = Config()
    return (lambda x: x * held.scale), lambda: setattr(Config, "scale", 3.0)


@case
def a_base_classs_attribute():
    class Base:
        scale = 2.0

    class Config(Base):
        pass

    held = Config()
    return (lambda x: x * held.scale), lambda: setattr(Base, "scale", 3.0)


@case
def a_subclass_that_gets_the_attribute():
    class Base:
        scale = 2.0

    class Config(Base):
        pass

    held = Config()
    return (lambda x: x * held.scale), lambda: setattr(Config, "scale", 3.0)


@case
def an_objects_class():
    class One:
        scale = 2.0

    class Two:
        scale = 3.0

    held = One()
    return (lambda x: x * held.scale), lambda: setattr(held, "__class__", Two)


@case
def a_classs_bases():
    class One:
        scale = 2.0

    class Two:
        scale = 3.0

    class Config(One):
        pass

    held = Config()
    return (lambda x: x * held.scale), lambda: setattr(Config, "__bases__", (Two,))


@case
def a_methods_global():
    space = run_in("scale = 2.0\nclass Model:\n  def run(self, x): return x * scale\nmodel = Model()")
    model = space["model"]
    return (lambda x: model.run(x)), lambda: space.update(scale=3.0)


@case
def a_bound_method_as_the_function():
    class Model:
        def __init__(self):
            self.scale = 2.0

        def run(self, x):
            return x * self.scale

    model = Model()
    return model.run, lambda: setattr(model, "scale", 3.0)


@case
def a_method_that_is_replaced_on_the_class():
    class Model:
        def run(self, x):
            return x * 2

    model = Model()
    return (lambda x: model.run(x)), lambda: setattr(Model, "run", lambda self, x: x * 3)


@case
def a_method_that_is_replaced_on_the_object():
    class Model:
        def run(self, x):
            return x * 2

    model = Model()
    return (lambda x: model.run(x)), lambda: setattr(model, "run", lambda x: x * 3)


@case
def a_methods_closure():
    scale = 2.0

    class Model:
        def __call__(self, x):
            return x * scale

    def change():
        nonlocal scale
        scale = 3.0

    return Model(), change


@case
def a_call_method_that_is_replaced():
    class Model:
        def __call__(self, x):
            return x * 2

    model = Model()
    return (lambda x: model(x)), lambda: setattr(Model, "__call__", lambda self, x: x * 3)


@case
def an_operator_of_a_class():
    class Scale:
        def __init__(self, value):
            self.value = value

        def apply(self, x):
            return x * self.value

        def __add__(self, other):
            return Scale(self.value + other)

    scale = Scale(1.0)
    return (lambda x: (scale + 1.0).apply(x)), lambda: setattr(Scale, "__add__", lambda self, other: Scale(7.0))


@case
def a_length_of_a_class():
    class Sized:
        count = 2

        def __len__(self):
            return self.count

    held = Sized()
    return (lambda x: x * len(held)), lambda: setattr(held, "count", 3)


@case
def a_truth_that_a_class_gets():
    class Flag:
        pass

    flag = Flag()
    return (lambda x: x * 2 if flag else x), lambda: setattr(Flag, "__bool__", lambda self: False)


@case
def iteration_over_an_object():
    class Many:
        def __init__(self):
            self.values = [2.0]

        def __iter__(self):
            return iter(self.values)

    many = Many()

    def step(x):
        for value in many:
            x = x * value
        return x

    return step, lambda: many.values.append(3.0)


@case
def an_item_of_an_object():
    class Table:
        def __init__(self):
            self.held = {"a": 2.0}

        def __getitem__(self, name):
            return self.held[name]

    table = Table()
    return (lambda x: x * table["a"]), lambda: table.held.update(a=3.0)


@case
def membership_in_an_object():
    class Names:
        def __init__(self):
            self.held = {"a"}

        def __contains__(self, name):
            return name in self.held

    names = Names()
    return (lambda x: x * 2 if "b" in names else x), lambda: names.held.add("b")


@case
def a_property():
    class Config:
        def __init__(self):
            self._hidden = 2.0

        @property
        def scale(self):
            return self._hidden

    config = Config()
    return (lambda x: x * config.scale), lambda: setattr(config, "_hidden", 3.0)


@case
def a_property_that_is_replaced():
    class Config:
        @property
        def scale(self):
            return 2.0

    config = Config()
    return (lambda x: x * config.scale), lambda: setattr(Config, "scale", property(lambda self: 3.0))


@case
def a_cached_property_that_is_forgotten():
    class Config:
        base = 2.0

        @functools.cached_property
        def scale(self):
            return self.base

    config = Config()

    def change():
        config.base = 3.0
        config.__dict__.pop("scale", None)

    return (lambda x: x * config.scale), change


@case
def a_descriptor():
    class Setting:
        def __init__(self):
            self.value = 2.0

        def __get__(self, instance, owner):
            return self.value

    setting = Setting()

    class Config:
        scale = setting

    config = Config()
    return (lambda x: x * config.scale), lambda: setattr(setting, "value", 3.0)


@case
def a_descriptor_with_values_by_object():
    class Setting:
        def __init__(self):
            self.values = {}

        def __get__(self, instance, owner):
            return self.values[id(instance)]

        def __set__(self, instance, value):
            self.values[id(instance)] = value

    class Config:
        scale = Setting()

    config = Config()
    config.scale = 2.0
    return (lambda x: x * config.scale), lambda: setattr(config, "scale", 3.0)


@case
def a_getattr_method():
    class Config:
        def __init__(self):
            self.held = {"scale": 2.0}

        def __getattr__(self, name):
            return self.held[name]

    config = Config()
    return (lambda x: x * config.scale), lambda: config.held.update(scale=3.0)


@case
def a_getattribute_method():
    class Config:
        def __getattribute__(self, name):
            return object.__getattribute__(self, "held")[name]

    config = Config()
    held = {"scale": 2.0}
    object.__setattr__(config, "held", held)
    return (lambda x: x * config.scale), lambda: held.update(scale=3.0)


@case
def an_attribute_by_getattr():
    config = Holder(layer0=2.0)
    return (lambda x: x * getattr(config, f"layer{0}")), lambda: setattr(config, "layer0", 3.0)


@case
def an_attribute_by_attrgetter():
    config = Holder(scale=2.0)
    get = operator.attrgetter("scale")
    return (lambda x: x * get(config)), lambda: setattr(config, "scale", 3.0)


@case
def an_attribute_by_its_dict():
    config = Holder(scale=2.0)
    return (lambda x: x * config.__dict__["scale"]), lambda: setattr(config, "scale", 3.0)


@case
def an_attribute_that_hasattr_asks_for():
    config = Holder()
    return (lambda x: x * 2 if hasattr(config, "double") else x), lambda: setattr(config, "double", True)


@case
def slots():
    class Config:
        __slots__ = ("scale",)

    config = Config()
    config.scale = 2.0
    return (lambda x: x * config.scale), lambda: setattr(config, "scale", 3.0)


@case
def slots_of_a_base():
    class Base:
        __slots__ = ("scale",)

    class Config(Base):
        __slots__ = ("other",)

    config = Config()
    config.scale = 2.0
    return (lambda x: x * config.scale), lambda: setattr(config, "scale", 3.0)


@case
def a_slot_that_is_filled_later():
    class Config:
        __slots__ = ("scale",)

    config = Config()
    return (lambda x: x * getattr(config, "scale", 2.0)), lambda: setattr(config, "scale", 3.0)


@case
def slots_of_classes_that_their_metaclass_calls_equal():
    class Equal(type):
        def __eq__(cls, other):
            return True

        def __hash__(cls):
            return 1

    class One(metaclass=Equal):
        __slots__ = ("scale",)

    class Other(metaclass=Equal):
        __slots__ = ("shift",)

    one, other = One(), Other()
    one.scale, other.shift = 2.0, 1.0
    return (lambda x: x * one.scale + other.shift), lambda: setattr(other, "shift", 3.0)


@case
def a_dataclass():
    @dataclasses.dataclass
    class Config:
        scale: float = 2.0

    config = Config()
    return (lambda x: x * config.scale), lambda: setattr(config, "scale", 3.0)


@case
def a_dataclass_with_slots():
    @dataclasses.dataclass(slots=True)
    class Config:
        scale: float = 2.0

    config = Config()
    return (lambda x: x * config.scale), lambda: setattr(config, "scale", 3.0)


@case
def a_frozen_dataclass_forced():
    @dataclasses.dataclass(frozen=True)
    class Config:
        scale: float = 2.0

    config = Config()
    return (lambda x: x * config.scale), lambda: object.__setattr__(config, "scale", 3.0)


@case
def a_dataclass_in_a_dataclass():
    @dataclasses.dataclass
    class Inner:
        scale: float = 2.0

    @dataclasses.dataclass
    class Outer:
        inner: Inner = dataclasses.field(default_factory=Inner)

    config = Outer()
    return (lambda x: x * config.inner.scale), lambda: setattr(config.inner, "scale", 3.0)


@case
def asdict_of_a_dataclass():
    @dataclasses.dataclass
    class Config:
        scale: float = 2.0

    config = Config()
    return (lambda x: x * dataclasses.asdict(config)["scale"]), lambda: setattr(config, "scale", 3.0)


@case
def a_copy_of_an_object():
    config = Holder(scale=2.0)
    return (lambda x: x * copy.copy(config).scale), lambda: setattr(config, "scale", 3.0)


@case
def a_deep_copy_whose_attribute_nobody_names():
    config = Holder(scale=2.0)

    def step(x):
        (value,) = vars(copy.deepcopy(config)).values()
        return x * value

    return step, lambda: setattr(config, "scale", 3.0)


@case
def a_simple_namespace():
    config = types.SimpleNamespace(scale=2.0)
    return (lambda x: x * config.scale), lambda: setattr(config, "scale", 3.0)


@case
def an_enum_constant_that_is_exchanged():
    class Mode(enum.Enum):
        A = 2.0
        B = 3.0

    config = Holder(mode=Mode.A)
    return (lambda x: x * config.mode.value), lambda: setattr(config, "mode", Mode.B)


@case
def an_enum_flag():
    class Flags(enum.Flag):
        A = 1
        B = 2

    config = Holder(flags=Flags.A)
    return (lambda x: x * 2 if Flags.B in config.flags else x), lambda: setattr(config, "flags", Flags.A | Flags.B)


@case
def an_enums_hidden_value():
    class Mode(enum.Enum):
        A = 2.0

    return (lambda x: x * Mode.A.value), lambda: setattr(Mode.A, "_value_", 3.0)


@case
def a_metaclasss_attribute():
    class Meta(type):
        scale = 2.0

    class Config(metaclass=Meta):
        pass

    return (lambda x: x * Config.scale), lambda: setattr(Meta, "scale", 3.0)


@case
def a_metaclasss_property():
    held = [2.0]

    class Meta(type):
        @property
        def scale(cls):
            return held[0]

    class Config(metaclass=Meta):
        pass

    return (lambda x: x * Config.scale), lambda: held.__setitem__(0, 3.0)


@case
def a_class_method():
    class Config:
        scale = 2.0

        @classmethod
        def get(cls):
            return cls.scale

    return (lambda x: x * Config.get()), lambda: setattr(Config, "scale", 3.0)


@case
def a_static_methods_global():
    space = run_in("scale = 2.0\nclass C:\n  @staticmethod\n  def get(): return scale")
    owner = space["C"]
    return (lambda x: x * owner.get()), lambda: space.update(scale=3.0)


@case
def a_singleton():
    class Config:
        _instance = None

        def __init__(self):
            self.scale = 2.0

        @classmethod
        def instance(cls):
            if cls._instance is None:
                cls._instance = cls()
            return cls._instance

    return (lambda x: x * Config.instance().scale), lambda: setattr(Config.instance(), "scale", 3.0)


@case
def a_super_call():
    class Base:
        scale = 2.0

        def run(self, x):
            return x * self.scale

    class Model(Base):
        def run(self, x):
            return super().run(x) + 1

    model = Model()
    return (lambda x: model.run(x)), lambda: setattr(Base, "scale", 3.0)


@case
def a_constructor_inside():
    class Scale:
        value = 2.0

        def __init__(self):
            self.mine = self.value

    return (lambda x: x * Scale().mine), lambda: setattr(Scale, "value", 3.0)


@case
def an_abstract_bases_attribute():
    class Base(abc.ABC):
        scale = 2.0

        @abc.abstractmethod
        def run(self): ...

    class Model(Base):
        def run(self):
            return self.scale

    model = Model()
    return (lambda x: x * model.run()), lambda: setattr(Base, "scale", 3.0)


@case
def a_generic_class():
    T = typing.TypeVar("T")

    class Box(typing.Generic[T]):
        def __init__(self, value):
            self.value = value

    box = Box(2.0)
    return (lambda x: x * box.value), lambda: setattr(box, "value", 3.0)


@case
def a_match_statement():
    @dataclasses.dataclass
    class Config:
        scale: float = 2.0

    config = Config()

    def step(x):
        match config:
            case Config(scale=2.0):
                return x * 2
            case _:
                return x

    return step, lambda: setattr(config, "scale", 3.0)
