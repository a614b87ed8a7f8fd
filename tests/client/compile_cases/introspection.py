"""Cases: what functions, classes and arrays say of themselves, and what Python keeps for all."""

import abc
import array
import os
import tempfile

import numpy as np

import gradwire
from tests.client.compile_cases.table import Holder, case, setting

TMP = tempfile.mkdtemp()


@case
def function_globals_attr():
    ns = {"S": 2.0}
    exec("def g(): return 1", ns)
    g = ns["g"]
    return (lambda x: x * g.__globals__["S"]), lambda: ns.__setitem__("S", 3.0)


@case
def closure_cell_of_unrun():
    s = 2.0

    def g():
        return s

    def f(x):
        return x * g.__closure__[0].cell_contents

    def change():
        nonlocal s
        s = 3.0

    return f, change


@case
def defaults_of_unrun():
    def g(a=2.0):
        return a

    return (lambda x: x * g.__defaults__[0]), setting(g, "__defaults__", (3.0,))


@case
def kwdefaults_of_unrun():
    def g(*, a=2.0):
        return a

    return (lambda x: x * g.__kwdefaults__["a"]), lambda: g.__kwdefaults__.update(a=3.0)


@case
def name_of_function():
    def g():
        pass

    return (lambda x: x * len(g.__name__)), setting(g, "__name__", "longer")


@case
def qualname_of_function():
    def g():
        pass

    return (lambda x: x * len(g.__qualname__)), setting(g, "__qualname__", "longer")


@case
def doc_of_function():
    def g():
        "doc"

    return (lambda x: x * len(g.__doc__)), setting(g, "__doc__", "longer")


@case
def annotations_of_function():
    def g(a: 2.0):
        pass

    return (lambda x: x * g.__annotations__["a"]), lambda: g.__annotations__.update(a=3.0)


@case
def module_of_function():
    def g():
        pass

    return (lambda x: x * len(g.__module__)), setting(g, "__module__", "longer_than")


@case
def name_of_class():
    class A:
        pass

    return (lambda x: x * len(A.__name__)), setting(A, "__name__", "Longer")


@case
def name_of_type_of():
    class A:
        pass

    a = A()
    return (lambda x: x * len(type(a).__name__)), setting(A, "__name__", "Longer")


@case
def qualname_of_class():
    class A:
        pass

    return (lambda x: x * len(A.__qualname__)), setting(A, "__qualname__", "Longer")


@case
def abc_register_later():
    class A(abc.ABC):  # noqa: B024 - what is registered with it counts
        pass

    class B:
        pass

    b = B()
    return (lambda x: x * (2.0 if isinstance(b, A) else 3.0)), lambda: A.register(B)


@case
def np_errstate():
    a = np.zeros(1)

    def f(x):
        try:
            (a / a)[0].item()
            s = 2.0
        except FloatingPointError:
            s = 3.0
        return x * s

    np.seterr(all="ignore")
    return f, (lambda: np.seterr(all="raise")), None, lambda: np.seterr(all="warn")


@case
def np_geterr():
    np.seterr(all="ignore")
    return (
        (lambda x: x * len(np.geterr()["divide"])),
        (lambda: np.seterr(all="call")),
        None,
        lambda: np.seterr(all="warn"),
    )


@case
def np_printoptions():
    a = np.array([1.23456789])
    return (
        (lambda x: x * len(str(a))),
        (lambda: np.set_printoptions(precision=2)),
        None,
        lambda: np.set_printoptions(precision=8),
    )


@case
def np_get_printoptions():
    return (
        (lambda x: x * np.get_printoptions()["precision"]),
        (lambda: np.set_printoptions(precision=2)),
        None,
        lambda: np.set_printoptions(precision=8),
    )


@case
def np_fromfile():
    p = os.path.join(TMP, "a.bin")
    np.array([2.0]).tofile(p)
    return (lambda x: x * float(np.fromfile(p)[0])), lambda: np.array([3.0]).tofile(p)


@case
def np_save_side_effect():
    p = os.path.join(TMP, "s.npy")

    def f(x):
        np.save(p, np.array([2.0]))
        return x * 2

    return f, (lambda: os.remove(p) if os.path.exists(p) else None), None, None, lambda: os.path.exists(p)


@case
def captured_ndarray_flags():
    a = np.array([1.0, 2.0, 3.0], dtype="f4")
    return (lambda x: x * (2.0 if a.flags.writeable else 3.0)), lambda: a.setflags(write=False)


@case
def captured_ndarray_flags_item():
    a = np.array([1.0, 2.0, 3.0], dtype="f4")
    return (lambda x: x * (2.0 if a.flags["WRITEABLE"] else 3.0)), lambda: setattr(a.flags, "writeable", False)


@case
def array_typecode():
    h = Holder(a=array.array("b", b"\x00\x00\x80?"))
    return (lambda x: x * len(h.a)), lambda: setattr(h, "a", array.array("f", b"\x00\x00\x80?"))


@case
def deterministic_read():
    return (
        (lambda x: x * (2.0 if gradwire.are_deterministic_algorithms_enabled() else 3.0)),
        (lambda: gradwire.use_deterministic_algorithms(True)),
        None,
        lambda: gradwire.use_deterministic_algorithms(False),
    )


@case
def num_threads_read():
    n = gradwire.get_num_threads()
    return (
        (lambda x: x * gradwire.get_num_threads()),
        (lambda: gradwire.set_num_threads(n + 1)),
        None,
        lambda: gradwire.set_num_threads(n),
    )


@case
def matmul_precision_read():
    return (
        (lambda x: x * len(gradwire.get_float32_matmul_precision())),
        (lambda: gradwire.set_float32_matmul_precision("high")),
        None,
        lambda: gradwire.set_float32_matmul_precision("highest"),
    )


@case
def np_masked():
    a = np.ma.array([1.0, 2.0], mask=[False, False])
    return (lambda x: x * float(a.sum())), lambda: a.mask.__setitem__(0, True)
