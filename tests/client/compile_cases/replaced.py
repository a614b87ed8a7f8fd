"""Cases: one thing put in the place of another that nothing but itself tells apart."""

import builtins
import functools
import math
import operator

import numpy as np

import gradwire
import gradwire.nn as nn
from tests.client.compile_cases.table import Holder, case, nothing, setting


class WithM:
    def __init__(self):
        self.k = 2.0

    def meth(self):
        return self.k


@case
def builtin_exchanged():
    h = Holder(f=math.sin)
    return (lambda x: x * h.f(1.0)), setting(h, "f", math.cos)


@case
def builtin_in_list():
    h = [math.sin]
    return (lambda x: x * h[0](1.0)), lambda: h.__setitem__(0, math.cos)


@case
def builtin_global_alias():
    f = math.floor

    def ch():
        nonlocal f
        f = math.ceil

    return (lambda x: x * f(1.5)), ch


@case
def op_exchanged():
    h = Holder(f=operator.add)
    return (lambda x: h.f(x, x)), setting(h, "f", operator.sub)


@case
def torch_fn_exchanged():
    h = Holder(f=gradwire.sin)
    return (lambda x: h.f(x)), setting(h, "f", gradwire.cos)


@case
def bound_str_exchanged():
    h = Holder(f="aa".count)
    return (lambda x: x * h.f("a")), setting(h, "f", "aaa".count)


@case
def str_method_exchanged():
    h = Holder(f=str.upper)
    return (lambda x: x * (2.0 if h.f("aA") == "AA" else 3.0)), setting(h, "f", str.lower)


@case
def partial_func_exch():
    h = Holder(p=functools.partial(math.pow, 2.0))
    return (lambda x: x * h.p(2.0)), setting(h, "p", functools.partial(math.atan2, 2.0))


@case
def ufunc_exchanged():
    h = Holder(f=np.sin)
    return (lambda x: x * float(h.f(1.0))), setting(h, "f", np.cos)


@case
def builtin_patched():
    old = builtins.max
    return (
        (lambda x: x * max(2.0, 1.0)),
        (lambda: setattr(builtins, "max", min)),
        None,
        lambda: setattr(builtins, "max", old),
    )


@case
def captured_resize():
    w = gradwire.ones(3)
    return (lambda x: x * w.numel()), lambda: setattr(w, "data", gradwire.ones(4))


@case
def captured_requires():
    w = gradwire.ones(3)
    return (lambda x: x * (2.0 if w.requires_grad else 3.0)), lambda: w.requires_grad_()


@case
def captured_is_leaf():
    w = gradwire.ones(3, requires_grad=True)
    h = Holder(v=w * 2)
    return (lambda x: x * (2.0 if h.v.is_leaf else 3.0)), lambda: h.v.detach_()


@case
def globals_same_code():
    code = compile("def f():\n    return S", "q.py", "exec")

    def mk(v):
        ns = {"S": v}
        exec(code, ns)
        return ns["f"]

    fs = [mk(2.0)]
    return (lambda x: x * fs[0]()), lambda: fs.__setitem__(0, mk(3.0))


@case
def arg_attr_set():
    seen_ = []

    def args():
        t = gradwire.ones(3)
        seen_.append(t)
        return (t,)

    def f(x):
        x.tag = 1.0
        return x * 2

    return f, nothing, args, None, lambda: [getattr(t, "tag", None) for t in seen_]


@case
def patch_tensor_rpow():
    old = gradwire.Tensor.__rpow__
    return (
        (lambda x: 2**x),
        (lambda: setattr(gradwire.Tensor, "__rpow__", lambda a, b: a + b)),
        None,
        lambda: setattr(gradwire.Tensor, "__rpow__", old),
    )


@case
def patch_tensor_abs():
    old = gradwire.Tensor.__abs__
    return (
        (lambda x: abs(x)),
        (lambda: setattr(gradwire.Tensor, "__abs__", lambda a: a * 9)),
        None,
        lambda: setattr(gradwire.Tensor, "__abs__", old),
    )


@case
def patch_tensor_len():
    old = gradwire.Tensor.__len__
    return (
        (lambda x: x * len(x)),
        (lambda: setattr(gradwire.Tensor, "__len__", lambda a: 9)),
        None,
        lambda: setattr(gradwire.Tensor, "__len__", old),
    )


@case
def patch_tensor_invert():
    old = gradwire.Tensor.__ge__
    return (
        (lambda x: x >= 2),
        (lambda: setattr(gradwire.Tensor, "__ge__", lambda a, b: a * 9)),
        None,
        lambda: setattr(gradwire.Tensor, "__ge__", old),
    )


@case
def default_same_code():
    def mk(v):
        return lambda a=v: a

    fs = [mk(2.0)]
    return (lambda x: x * fs[0]()), lambda: fs.__setitem__(0, mk(3.0))


@case
def closures_in_list_same_code():
    def mk(v):
        return lambda: v

    fs = [mk(2.0)]
    return (lambda x: x * fs[0]()), lambda: fs.__setitem__(0, mk(3.0))


@case
def method_same_code_other_self():
    a, b = WithM(), WithM()
    b.k = 3.0
    h = Holder(m=a.meth)
    return (lambda x: x * h.m()), setting(h, "m", b.meth)


@case
def objs_swapped_identity():
    p, q = Holder(v=1.0), Holder(v=1.0)
    h = Holder(a=p, b=p)
    return (lambda x: x * (2.0 if h.a is h.b else 3.0)), setting(h, "b", q)


@case
def grad_identity():
    w = nn.Parameter(gradwire.tensor([1.0, 2.0, 3.0]))
    w.grad = gradwire.ones(3)
    c = Holder(g=w.grad)

    def change():
        w.grad = gradwire.ones(3)

    return (lambda x: x * (2.0 if w.grad is c.g else 3.0)), change
