"""Modules: registration by attributes, state dictionaries, and moves without a graph."""

import copy
from collections import OrderedDict

import pytest

import gradwire as gw
from gradwire import nn

pytestmark = pytest.mark.usefixtures("session")


class Net(nn.Module):
    """Two layers and a buffer, one of everything a module holds."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.rest = nn.Sequential(nn.ReLU(), nn.Linear(4, 2))
        self.scale = nn.Parameter(gw.ones(2))
        self.register_buffer("offset", gw.zeros(2))
        self.register_buffer("scratch", gw.zeros(1), persistent=False)

    def forward(self, x):
        return self.rest(self.first(x)) * self.scale + self.offset


KEYS = ["scale", "offset", "first.weight", "first.bias", "rest.1.weight", "rest.1.bias"]


def values(tensor):
    return tensor.detach().tolist()


# Parameters.


def test_parameter_is_a_leaf_that_requires_grad():
    p = nn.Parameter(gw.zeros(2))
    assert isinstance(p, gw.Tensor)
    assert isinstance(p, nn.Parameter)
    assert p.is_leaf
    assert p.requires_grad
    assert p.grad_fn is None
    assert p.grad is None
    assert not nn.Parameter(gw.zeros(2), requires_grad=False).requires_grad


def test_parameter_of_a_non_leaf_is_a_leaf_outside_its_graph():
    x = gw.ones(2, requires_grad=True)
    p = nn.Parameter(x * 2)
    assert p.is_leaf
    p.sum().backward()
    assert values(p.grad) == [1.0, 1.0]
    assert x.grad is None


def test_parameter_shares_the_storage_of_its_data():
    data = gw.zeros(3)
    p = nn.Parameter(data)
    data[1] = 5.0
    assert values(p) == [0.0, 5.0, 0.0]
    with gw.no_grad():
        p[0] = 7.0
    assert values(data) == [7.0, 5.0, 0.0]


def test_parameter_of_integers_is_refused_unless_without_grad():
    with pytest.raises(RuntimeError, match="floating point"):
        nn.Parameter(gw.tensor([1, 2]))
    assert nn.Parameter(gw.tensor([1, 2]), requires_grad=False).dtype is gw.int64


def test_parameter_prints_what_it_contains():
    assert repr(nn.Parameter(gw.ones(2))) == "Parameter containing:\ntensor([1., 1.], requires_grad=True)"


def test_op_on_a_parameter_gives_a_plain_tensor():
    result = nn.Parameter(gw.ones(2)) * 2
    assert type(result) is gw.Tensor
    assert result.grad_fn.name() == "MulBackward0"


def test_deepcopy_of_a_parameter_is_a_parameter_of_its_own():
    p = nn.Parameter(gw.ones(2))
    q = copy.deepcopy(p)
    with gw.no_grad():
        q.zero_()
    assert isinstance(q, nn.Parameter)
    assert q.requires_grad
    assert values(p) == [1.0, 1.0]


# Attributes.


def test_attributes_register_parameters_modules_and_buffers():
    net = Net()
    assert [name for name, _ in net.named_parameters()] == [key for key in KEYS if key != "offset"]
    assert [name for name, _ in net.named_buffers()] == ["offset", "scratch"]
    assert [name for name, _ in net.named_modules()] == ["", "first", "rest", "rest.0", "rest.1"]
    assert [name for name, _ in net.named_children()] == ["first", "rest"]
    assert len(list(net.modules())) == 5
    assert len(list(net.children())) == 2
    assert len(list(net.parameters(recurse=False))) == 1
    assert net.get_parameter("rest.1.weight") is net.rest[1].weight
    assert net.get_submodule("rest.0") is net.rest[0]
    assert net.get_buffer("offset") is net.offset


def test_shared_parameter_is_listed_once():
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    net[1].weight = net[0].weight
    assert [name for name, _ in net.named_parameters()] == ["0.weight", "0.bias", "1.bias"]
    assert len(list(net.named_parameters(remove_duplicate=False))) == 4
    assert list(net.state_dict()) == ["0.weight", "0.bias", "1.weight", "1.bias"]


def test_parameter_is_replaced_only_by_a_parameter_or_none():
    layer = nn.Linear(2, 2)
    with pytest.raises(TypeError, match=r"cannot assign '.*Tensor' as parameter 'weight'"):
        layer.weight = gw.zeros(2, 2)
    layer.bias = None
    assert layer.bias is None
    assert list(layer.state_dict()) == ["weight"]
    layer.weight = nn.Parameter(gw.zeros(2, 2))
    assert values(layer(gw.ones(1, 2))) == [[0.0, 0.0]]


def test_module_is_replaced_only_by_a_module_or_none():
    net = nn.Sequential(nn.ReLU())
    with pytest.raises(TypeError, match="as child module '0'"):
        setattr(net, "0", 3)


def test_attribute_that_changes_its_kind_is_listed_under_the_new_one():
    module = nn.Module()
    module.a = 1
    module.a = nn.Parameter(gw.ones(1))
    assert [name for name, _ in module.named_parameters()] == ["a"]
    module.a = nn.ReLU()
    assert list(module.parameters()) == []
    assert [name for name, _ in module.named_children()] == ["a"]
    del module.a
    assert list(module.children()) == []
    with pytest.raises(AttributeError, match="'Module' object has no attribute 'a'"):
        module.a  # noqa: B018


def test_assignment_before_init_is_refused():
    class Hasty(nn.Module):
        def __init__(self, what):
            self.held = what

    with pytest.raises(AttributeError, match=r"cannot assign parameters before Module.__init__\(\) call"):
        Hasty(nn.Parameter(gw.ones(1)))
    with pytest.raises(AttributeError, match=r"cannot assign module before Module.__init__\(\) call"):
        Hasty(nn.ReLU())


def test_bad_names_are_refused():
    module = nn.Module()
    with pytest.raises(KeyError, match="parameter name can"):
        module.register_parameter("a.b", None)
    with pytest.raises(KeyError, match="be empty string"):
        module.add_module("", nn.ReLU())
    with pytest.raises(KeyError, match="already exists"):
        module.register_buffer("forward", gw.ones(1))
    with pytest.raises(TypeError, match="not a Module subclass"):
        module.add_module("a", 3)
    with pytest.raises(TypeError, match="to buffer 'a'"):
        module.register_buffer("a", 3)


def test_non_leaf_is_refused_as_a_parameter():
    module = nn.Module()
    with pytest.raises(TypeError, match="to parameter 'a'"):
        module.register_parameter("a", gw.ones(1))


def test_forward_must_be_given():
    with pytest.raises(NotImplementedError, match='missing the required "forward" function'):
        nn.Module()(1)


def test_hooks_see_and_change_what_passes():
    layer = nn.Identity()
    seen = []
    before = layer.register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    after = layer.register_forward_hook(lambda module, args, out: seen.append((args[0].item(), out.item())))
    changing = layer.register_forward_hook(lambda module, args, out: out * 10)
    assert layer(gw.tensor(1.0)).item() == 20.0
    assert seen == [(2.0, 2.0)]
    for handle in (before, after, changing):
        handle.remove()
    assert layer(gw.tensor(1.0)).item() == 1.0


# Mode and gradients.


def test_train_and_eval_switch_the_whole_tree_and_leave_grad_mode():
    net = Net()
    assert net.eval() is net
    assert not any(module.training for module in net.modules())
    assert net(gw.ones(1, 3)).requires_grad
    assert all(module.training for module in net.train().modules())
    with pytest.raises(ValueError, match="boolean"):
        net.train("yes")


def test_zero_grad_drops_or_zeroes():
    net = Net()
    net(gw.ones(1, 3)).sum().backward()
    held = net.first.bias.grad
    net.zero_grad(set_to_none=False)
    assert net.first.bias.grad is held
    assert values(held) == [0.0] * 4
    net.zero_grad()
    assert all(p.grad is None for p in net.parameters())


def test_requires_grad_freezes_all_parameters():
    net = Net().requires_grad_(False)
    assert not any(p.requires_grad for p in net.parameters())
    assert not net(gw.ones(1, 3)).requires_grad


def test_apply_goes_children_first():
    seen = []
    net = Net()
    assert net.apply(lambda module: seen.append(type(module).__name__)) is net
    assert seen == ["Linear", "ReLU", "Linear", "Sequential", "Net"]


# Moving and casting.


def test_casting_a_module_keeps_its_parameters_leaves_and_their_grads():
    net = Net()
    before = list(net.parameters())
    net(gw.ones(1, 3)).sum().backward()
    grads = [values(p.grad) for p in before]
    assert net.double() is net
    assert all(p is q for p, q in zip(net.parameters(), before, strict=True))
    assert all(p.dtype is gw.float64 and p.is_leaf and p.requires_grad for p in before)
    assert [values(p.grad) for p in before] == grads
    assert all(p.grad.dtype is gw.float64 for p in before)
    assert net.offset.dtype is gw.float64
    net.zero_grad()
    net(gw.ones(1, 3, dtype=gw.float64)).sum().backward()
    assert [p.grad.dtype for p in before] == [gw.float64] * len(before)


@pytest.mark.parametrize(("cast", "dtype"), [("half", "float16"), ("bfloat16", "bfloat16"), ("float", "float32")])
def test_cast_methods(cast, dtype):
    assert getattr(nn.Linear(2, 2).double(), cast)().weight.dtype is getattr(gw, dtype)


def test_to_takes_dtype_device_and_tensor():
    net = nn.BatchNorm1d(2)
    net.to("cpu", gw.float64)
    assert net.weight.dtype is gw.float64
    assert net.num_batches_tracked.dtype is gw.int64
    net.to(gw.zeros(1, dtype=gw.float16))
    assert net.running_mean.dtype is gw.float16
    net.to(dtype=gw.float32, device="cpu")
    assert net.weight.dtype is gw.float32
    assert net.cpu().weight.device == gw.device("cpu")
    with pytest.raises(TypeError, match="only accepts floating point or complex dtypes"):
        net.to(gw.int64)


# State.


def test_state_dict_shares_storage_and_is_detached():
    net = Net()
    state = net.state_dict()
    assert list(state) == KEYS
    assert not any(tensor.requires_grad for tensor in state.values())
    with gw.no_grad():
        net.scale.fill_(3.0)
    assert values(state["scale"]) == [3.0, 3.0]
    assert net.state_dict(keep_vars=True)["scale"] is net.scale
    assert next(iter(net.state_dict(prefix="net."))) == "net.scale"


def test_loading_copies_values_into_the_same_parameters():
    source, target = Net(), Net()
    kept = list(target.parameters())
    result = target.load_state_dict(source.state_dict())
    assert repr(result) == "<All keys matched successfully>"
    assert all(p is q for p, q in zip(target.parameters(), kept, strict=True))
    for (_, p), (_, q) in zip(source.named_parameters(), target.named_parameters(), strict=True):
        assert values(p) == values(q)
    with gw.no_grad():
        source.scale.zero_()
    assert values(target.scale) == [1.0, 1.0]


def test_refused_state_changes_nothing():
    net = Net()
    before = {key: values(tensor) for key, tensor in net.state_dict().items()}
    state = OrderedDict((key, tensor + 1) for key, tensor in net.state_dict().items())
    state["rest.1.weight"] = gw.zeros(5, 5)
    del state["first.bias"]
    state["unknown"] = gw.zeros(1)
    with pytest.raises(RuntimeError) as refusal:
        net.load_state_dict(state)
    message = str(refusal.value)
    assert "Error(s) in loading state_dict for Net:" in message
    assert 'Missing key(s) in state_dict: "first.bias"' in message
    assert 'Unexpected key(s) in state_dict: "unknown"' in message
    assert message.index("Missing") < message.index("Unexpected") < message.index("size mismatch")
    assert (
        "size mismatch for rest.1.weight: copying a param with shape torch.Size([5, 5]) from checkpoint, "
        "the shape in current model is torch.Size([2, 4])" in message
    )
    assert {key: values(tensor) for key, tensor in net.state_dict().items()} == before


def test_lenient_loading_names_what_it_passed_over():
    net = Net()
    result = net.load_state_dict({"scale": gw.zeros(2), "other": gw.zeros(1)}, strict=False)
    assert result.missing_keys == [key for key in KEYS if key != "scale"]
    assert result.unexpected_keys == ["other"]
    assert values(net.scale) == [0.0, 0.0]


def test_loading_with_assign_takes_the_tensors():
    net = Net()
    state = {key: tensor.double() for key, tensor in net.state_dict().items()}
    net.load_state_dict(state, assign=True)
    assert net.first.weight.dtype is gw.float64
    assert net.first.weight.requires_grad
    assert isinstance(net.first.weight, nn.Parameter)


def test_state_must_be_a_mapping_of_tensors():
    with pytest.raises(TypeError, match="dict-like"):
        Net().load_state_dict([1])
    with pytest.raises(RuntimeError, match=r"expected .*Tensor"):
        nn.Linear(1, 1).load_state_dict({"weight": 1.0, "bias": gw.zeros(1)})


def test_deepcopy_of_a_module_is_independent():
    net = Net()
    twin = copy.deepcopy(net)
    with gw.no_grad():
        twin.scale.zero_()
    assert values(net.scale) == [1.0, 1.0]
    assert list(twin.state_dict()) == KEYS
    assert all(isinstance(p, nn.Parameter) and p.is_leaf for p in twin.parameters())
    assert twin.first.weight is not net.first.weight


# Containers.


def test_sequential_is_a_list_that_calls():
    net = nn.Sequential(OrderedDict(same=nn.Identity(), relu=nn.ReLU()))
    assert list(net._modules) == ["same", "relu"]
    assert net[-1] is net.relu
    assert len(net) == 2
    net.append(nn.Linear(2, 1))
    assert len(net[:2]) == 2
    assert isinstance(net[0:1], nn.Sequential)
    net[0] = nn.Sigmoid()
    assert isinstance(net.same, nn.Sigmoid)
    with pytest.raises(IndexError, match="out of range"):
        net[3]
    assert net(gw.zeros(1, 2)).shape == (1, 1)


def test_module_list_edits_like_a_list():
    layers = nn.ModuleList([nn.Linear(2, 2) for _ in range(3)])
    assert len(list(layers.parameters())) == 6
    last = layers[-1]
    layers.insert(0, nn.ReLU())
    layers += [nn.Tanh()]
    del layers[1]
    assert [type(layer).__name__ for layer in layers] == ["ReLU", "Linear", "Linear", "Tanh"]
    assert layers[2] is last
    assert isinstance(layers.pop(), nn.Tanh)
    assert list(layers.state_dict()) == ["1.weight", "1.bias", "2.weight", "2.bias"]
    assert len(layers[1:]) == 2
    assert len(layers + [nn.ReLU()]) == 4  # noqa: RUF005 - the operator is what is tested


def test_module_dict_holds_by_name():
    modules = nn.ModuleDict({"a": nn.Linear(1, 1), "b": nn.ReLU()})
    modules["c"] = nn.Tanh()
    modules.update({"d": nn.Sigmoid()})
    assert list(modules) == list(modules.keys()) == ["a", "b", "c", "d"]
    assert "a" in modules
    assert isinstance(modules.pop("b"), nn.ReLU)
    del modules["c"]
    assert [name for name, _ in modules.items()] == ["a", "d"]
    assert [type(module).__name__ for module in modules.values()] == ["Linear", "Sigmoid"]
    modules.clear()
    assert len(modules) == 0


def test_parameter_list_makes_parameters():
    held = nn.ParameterList([gw.ones(1), nn.Parameter(gw.ones(2))])
    held.append(gw.zeros(3))
    held += [gw.zeros(4)]
    assert all(isinstance(p, nn.Parameter) for p in held)
    assert [name for name, _ in held.named_parameters()] == ["0", "1", "2", "3"]
    assert held.pop().shape == (4,)
    held[0] = gw.zeros(5)
    assert held[0].shape == (5,)
    assert len(held[1:]) == 2


# Names.


def test_parameter_knows_its_name_in_the_outermost_module():
    loose = nn.Parameter(gw.ones(1))
    assert loose.name is None
    net = Net()
    assert net.scale.name == "scale"
    assert net.rest[1].weight.name == "rest.1.weight"


def test_unknown_function_names_close_ones():
    with pytest.raises(AttributeError, match=r"Did you mean: .*conv2d"):
        nn.functional.conv2  # noqa: B018


def test_a_module_that_is_moved_to_where_it_is_waits_for_nothing_and_keeps_its_gradients(session, monkeypatch):
    model = nn.Linear(3, 2)
    model(gw.ones(1, 3)).sum().backward()
    before = [(each.grad, each.data_ptr(), each._version) for each in model.parameters()]
    waits, wait = [], session.wait
    monkeypatch.setattr(session, "wait", lambda command, *args: waits.append(command) or wait(command, *args))
    assert model.to("cpu").to(gw.float32).cpu().float() is model
    assert waits == [] or session.every_call_waits
    after = [(each.grad, each.data_ptr(), each._version) for each in model.parameters()]
    assert all(one[0] is two[0] and one[1:] == two[1:] for one, two in zip(before, after, strict=True))
