"""make_fx: the code of traced graphs is PyTorch's, and running it computes the function anew. Over a real socket."""

import operator

import numpy as np
import pytest

import gradwire
from gradwire import fx
from gradwire.fx.experimental import proxy_tensor
from tests.client.oracle import torch
from tests.comparison import alike, plain

pytestmark = pytest.mark.usefixtures("session")

torch_proxy = pytest.importorskip("torch.fx.experimental.proxy_tensor")


def make_fx(t):
    return proxy_tensor.make_fx if t is gradwire else torch_proxy.make_fx


def given(t, count=1):
    """Sizes 2, 3, with the values of a formula."""
    return [(t.arange(6.0).reshape(2, 3) + 1 + place).sin() for place in range(count)]


def with_constant(t):
    outside = t.ones(3)
    return lambda x: x.sin() + outside


def with_layer(t):
    layer = t.nn.Linear(3, 2)
    layer.load_state_dict({"weight": t.arange(6.0).reshape(2, 3), "bias": t.ones(2)})

    def call(x):
        return layer(x)

    return call


def of_results(t):
    def call(x, y):
        largest = t.max(x, 1)
        return largest[0] + y.sum(), {"places": largest[1]}

    return call


def in_place(t):
    def call(x):
        y = x.clone()
        y.add_(1)
        return y.view(-1)

    return call


def of_parts(t):
    return lambda x: t.zeros(2) + x.split(1)[0][0][:2]


def of_a_dictionary(t):
    return lambda d: d["first"] + d["others"][0]


def annotated(t):
    def call(x):
        return t.full((2,), float("inf")) + x.to(t.float64).sum()

    call.__annotations__ = {"return": t.Tensor}
    return call


CALLS = {
    "a constant": (with_constant, 1),
    "parameters": (with_layer, 1),
    "several results": (of_results, 2),
    "a change in place": (in_place, 1),
    "parts": (of_parts, 1),
    "an annotation": (annotated, 1),
    "no values": (lambda t: lambda: t.ones(2), 0),
    "values in the code": (lambda t: lambda x: t.tensor([1.0, 2.0, 3.0]) + x, 1),
    "several kinds": (lambda t: lambda x: (x, 3, None, [x + 1]), 1),
    "names of Python": (lambda t: lambda x: x.abs().sum(0).max() + x.round().pow(2).mean(), 1),
    "unused ops": (lambda t: lambda x: (x.sin(), x.cos())[1], 1),
    "more arguments": (lambda t: lambda *args: args[0] * args[1], 2),
    "vmap": (lambda t: t.func.vmap(lambda x: x.sin() * 2), 1),
    "a network": (lambda t: lambda x: t.nn.functional.layer_norm(x @ x.t(), (2,)).softmax(-1).relu(), 1),
    "an in-place view": (lambda t: lambda x: x.clone().unsqueeze_(0).transpose_(0, 1).sum(1), 1),
    "copies": (lambda t: lambda x: x.t().reshape(6), 1),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_code_is_pytorchs_and_computes_anew(name):
    make, count = CALLS[name]
    graph = make_fx(gradwire)(make(gradwire))(*given(gradwire, count))
    expected = make_fx(torch)(make(torch))(*given(torch, count))
    assert graph.code == expected.code
    others = [each * 2 for each in given(gradwire, count)]
    same = [each * 2 for each in given(torch, count)]
    assert alike(plain(graph(*others)), plain(make(torch)(*same)))


def test_arguments_in_containers_are_flattened():
    def values(t, factor):
        return {"first": given(t)[0] * factor, "others": [given(t)[0] + factor]}

    graph = make_fx(gradwire)(of_a_dictionary(gradwire))(values(gradwire, 1))
    assert graph.code == make_fx(torch)(of_a_dictionary(torch))(values(torch, 1)).code
    assert alike(plain(graph(values(gradwire, 3))), plain(of_a_dictionary(torch)(values(torch, 3))))
    with pytest.raises(ValueError, match="structure"):
        graph({"first": 1})


def test_nodes_say_what_they_are():
    def described(t):
        graph = make_fx(t)(of_results(t))(*given(t, 2)).graph
        return [(n.op, n.name, str(n.args), str(n.kwargs), [u.name for u in n.users]) for n in graph.nodes], str(graph)

    assert described(gradwire) == described(torch)
    graph = make_fx(gradwire)(of_results(gradwire))(*given(gradwire, 2)).graph
    targets = [each.target for each in graph.nodes if each.op == "call_function"]
    assert targets[0] is gradwire.ops.aten.max.dim
    assert operator.getitem in targets
    graph.lint()
    assert next(iter(graph.nodes)).meta["tensor_meta"].shape == (2, 3)


def test_the_readable_form_is_pytorchs():
    found = make_fx(gradwire)(with_layer(gradwire))(*given(gradwire))
    expected = make_fx(torch)(with_layer(torch))(*given(torch))
    assert found.print_readable(print_output=False) == expected.print_readable(print_output=False)
    assert [name for name, _ in found.named_parameters()] == ["_param_constant0", "_param_constant1"]


def test_a_derivative_is_one_call_that_runs_anew():
    def loss(x):
        return (x.sin() * x).sum()

    for function in (gradwire.func.grad(loss), gradwire.func.jacrev(gradwire.func.grad(loss))):
        graph = make_fx(gradwire)(function)(*given(gradwire))
        assert "torch.autograd.grad(" in graph.code
        other = given(gradwire)[0] * 3
        assert gradwire.allclose(graph(other), function(other))


def test_what_would_be_wrong_when_run_anew_is_refused():
    trace = make_fx(gradwire)
    x = given(gradwire)[0]
    with pytest.raises(RuntimeError, match=r"get value out of a tracing tensor with aten._local_scalar_dense.default"):
        trace(lambda x: x * x.sum().item())(x)
    with pytest.raises(RuntimeError, match="get value out of a tracing tensor"):
        trace(lambda x: x if gradwire.equal(x, x) else -x)(x)
    with pytest.raises(NotImplementedError, match=r"no backward\(\) in a traced function"):
        trace(lambda x: x.detach().requires_grad_().sum().backward())(x)
    with pytest.raises(RuntimeError, match="Tracing expected 2 arguments but got 1"):
        trace(lambda x, *, k=2: x * k)(x)
    for options in ({"tracing_mode": "symbolic"}, {"decomposition_table": {1: 2}}):
        with pytest.raises(NotImplementedError, match="make_fx"):
            proxy_tensor.make_fx(lambda x: x, **options)


def test_numbers_of_numpy_are_pythons():
    def code(t, trace):
        return trace(lambda x: x * np.float64(1.5) + np.int64(2))(t.ones(3)).code

    from torch.fx.experimental.proxy_tensor import make_fx

    assert code(gradwire, proxy_tensor.make_fx) == code(torch, make_fx)


def test_a_graph_can_be_changed():
    graph = make_fx(gradwire)(lambda x: x.sin() + 1)(*given(gradwire))
    for node in graph.graph.nodes:
        if node.target is gradwire.ops.aten.sin.default:
            with graph.graph.inserting_before(node):
                other = graph.graph.call_function(gradwire.ops.aten.cos.default, node.args)
            node.replace_all_uses_with(other)
            graph.graph.erase_node(node)
    graph.recompile()
    x = given(gradwire)[0]
    assert gradwire.equal(graph(x), x.cos() + 1)
    assert gradwire.equal(fx.Interpreter(graph).run(x), x.cos() + 1)
    with pytest.raises(RuntimeError, match="still had 1 users"):
        graph.graph.erase_node(next(iter(graph.graph.nodes)))


def test_a_graph_is_built_by_hand():
    graph = fx.Graph()
    x = graph.placeholder("x")
    made = graph.call_method("relu", (graph.call_function(operator.add, (x, 1)),))
    graph.output(graph.call_module("layer", (made,)))
    module = fx.GraphModule({"layer": gradwire.nn.Identity()}, graph)
    assert module(gradwire.tensor([-3.0, 2.0])).tolist() == [0, 3]
    assert "add = x + 1;  x = None" in module.code
    graph.call_function(operator.neg, (x,))
    graph._nodes.insert(0, graph._nodes.pop())
    with pytest.raises(RuntimeError, match="used before it has been defined"):
        graph.lint()


def functional(t, case, inputs, remove):
    return make_fx(t)(t.func.functionalize(case(t), remove=remove))(*inputs(t)).code


def changes_a_view(t):
    def call(x):
        y = x.view(3, 2)
        y.add_(t.ones(2))
        x[0].mul_(2)
        return x, y

    return call


def changes_parts(t):
    def call(x):
        first, second = x.clone().split(1)
        first.copy_(second)
        x.t()[1:].zero_()
        return first + x.transpose(0, 1).diagonal().fill_(3.0).sum()

    return call


def writes_results(t):
    def call(x):
        low, high = t.empty(3), t.empty(3)
        t.aminmax(x, dim=0, out=(low, high))
        t.add(low, high, out=low)
        return low.unsqueeze(0).squeeze(0), high

    return call


@pytest.mark.parametrize("remove", ["mutations", "mutations_and_views"])
@pytest.mark.parametrize("case", [changes_a_view, changes_parts, writes_results])
def test_functionalized_code_is_pytorchs(case, remove):
    def inputs(t):
        return [t.arange(6.0).reshape(2, 3)]

    assert functional(gradwire, case, inputs, remove) == functional(torch, case, inputs, remove)


def test_functionalized_graphs_change_their_inputs_as_the_function_does():
    graph = make_fx(gradwire)(gradwire.func.functionalize(changes_a_view(gradwire)))(*given(gradwire))
    one, other = given(gradwire)[0] * 2, given(gradwire)[0] * 2
    found, expected = graph(one), changes_a_view(gradwire)(other)
    assert all(gradwire.equal(a, b) for a, b in zip(found, expected, strict=True))
    assert gradwire.equal(one, other)
