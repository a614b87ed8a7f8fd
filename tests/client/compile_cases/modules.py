"""Cases: modules."""

import gradwire
import gradwire.nn.functional as F
from gradwire import nn
from tests.client.compile_cases.table import case, run_in


def linear():
    gradwire.manual_seed(1)
    return nn.Linear(3, 3)


@case
def training_and_evaluation():
    model = nn.Sequential(linear(), nn.Dropout(0.5))
    return model, model.eval


@case
def a_parameter_that_is_replaced():
    model = linear()
    return model, lambda: setattr(model, "weight", nn.Parameter(gradwire.ones(3, 3)))


@case
def a_parameter_deep_inside_that_is_replaced():
    inner = model = linear()
    for _ in range(25):
        model = nn.Sequential(model)
    return model, lambda: setattr(inner, "weight", nn.Parameter(gradwire.ones(3, 3)))


@case
def a_parameters_data():
    model = linear()
    return model, lambda: setattr(model.weight, "data", gradwire.ones(3, 3))


@case
def a_bias_that_is_taken_away():
    model = linear()
    return model, lambda: setattr(model, "bias", None)


@case
def a_buffer():
    model = nn.BatchNorm1d(3)
    model.eval()
    return model, lambda: model.running_mean.fill_(1.0), lambda: (gradwire.arange(6.0).reshape(2, 3),)


@case
def a_buffer_that_is_replaced():
    model = nn.BatchNorm1d(3)
    model.eval()

    def change():
        model.running_mean = gradwire.ones(3)

    return model, change, lambda: (gradwire.arange(6.0).reshape(2, 3),)


@case
def batch_norm_counts():
    model = nn.BatchNorm1d(3)

    def step(x):
        y = model(x)
        return y, model.running_mean * 1, model.num_batches_tracked * 1

    return step, lambda: model.reset_running_stats(), lambda: (gradwire.arange(6.0).reshape(2, 3),)


@case
def a_probability():
    model = nn.Dropout(0.5)
    return model, lambda: setattr(model, "p", 0.9), lambda: (gradwire.ones(64),)


@case
def an_epsilon():
    model = nn.LayerNorm(3)
    return model, lambda: setattr(model, "eps", 1.0)


@case
def a_layer_that_is_exchanged():
    model = nn.Sequential(linear(), nn.ReLU())

    def change():
        model[1] = nn.Tanh()

    return model, change


@case
def a_layer_that_is_appended():
    model = nn.Sequential(linear())
    return model, lambda: model.append(nn.Tanh())


@case
def a_forward_that_is_patched():
    model = linear()
    return (lambda x: model(x)), lambda: setattr(model, "forward", lambda x: x * 2)


@case
def a_forward_that_is_patched_on_the_class():
    class Net(nn.Module):
        def forward(self, x):
            return x * 2

    model = Net()
    return model, lambda: setattr(Net, "forward", lambda self, x: x * 3)


@case
def a_forwards_global():
    space = run_in(
        "from gradwire import nn\nscale = 2.0\nclass Net(nn.Module):\n  def forward(self, x): return x * scale\n"
    )
    return space["Net"](), lambda: space.update(scale=3.0)


@case
def a_modules_own_number():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = 2.0

        def forward(self, x):
            return x * self.scale

    model = Net()
    return model, lambda: setattr(model, "scale", 3.0)


@case
def a_modules_class_attribute():
    class Net(nn.Module):
        scale = 2.0

        def forward(self, x):
            return x * self.scale

    return Net(), lambda: setattr(Net, "scale", 3.0)


@case
def a_forward_hook():
    model = linear()
    return model, lambda: model.register_forward_hook(lambda module, args, out: out * 2)


@case
def a_forward_hooks_state():
    model = linear()
    scale = [2.0]
    model.register_forward_hook(lambda module, args, out: out * scale[0])
    return model, lambda: scale.__setitem__(0, 3.0)


@case
def a_forward_hook_that_is_removed():
    model = linear()
    handle = model.register_forward_hook(lambda module, args, out: out * 2)
    return model, handle.remove


@case
def a_forward_pre_hook():
    model = linear()
    return model, lambda: model.register_forward_pre_hook(lambda module, args: (args[0] * 2,))


@case
def a_function_of_the_library_that_is_patched():
    old = F.relu

    def change():
        F.relu = lambda x: x * 5

    def undo():
        F.relu = old

    return (lambda x: F.relu(x)), change, None, undo


@case
def a_layer_class_that_is_patched():
    old = nn.ReLU.forward
    model = nn.ReLU()

    def change():
        nn.ReLU.forward = lambda self, x: x * 5

    def undo():
        nn.ReLU.forward = old

    return (lambda x: model(x)), change, None, undo


@case
def a_method_of_tensors_that_is_patched():
    old = gradwire.Tensor.relu

    def change():
        gradwire.Tensor.relu = lambda self: self * 5

    def undo():
        gradwire.Tensor.relu = old

    return (lambda x: x.relu()), change, None, undo


@case
def a_state_dict_that_is_loaded():
    model = linear()
    return model, lambda: model.load_state_dict({"weight": gradwire.ones(3, 3), "bias": gradwire.zeros(3)})


@case
def a_module_that_is_cast():
    model = linear()
    dtype = [gradwire.float32]

    def change():
        model.double()
        dtype[0] = gradwire.float64

    return model, change, lambda: (gradwire.ones(2, 3, dtype=dtype[0]),)


@case
def parameters_that_are_frozen():
    model = linear()
    return model, lambda: model.requires_grad_(False)


@case
def parameters_that_become_one():
    model = nn.Sequential(linear(), nn.Linear(3, 3))
    return model, lambda: setattr(model[1], "weight", model[0].weight)


@case
def a_module_list():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([linear()])

        def forward(self, x):
            for layer in self.layers:
                x = layer(x)
            return x

    model = Net()
    return model, lambda: model.layers.append(linear())


@case
def a_forward_that_is_patched_on_a_layer_inside():
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    return (lambda x: model(x)), lambda: setattr(model[1], "forward", lambda x: x * 2)


@case
def a_forward_that_is_patched_on_a_module_inside():
    class Inner(nn.Module):
        def forward(self, x):
            return x * 2

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Inner()

        def forward(self, x):
            return self.inner(x)

    model = Outer()
    return model, lambda: setattr(model.inner, "forward", lambda x: x * 3)


@case
def a_call_that_is_patched_on_a_class_of_layers():
    model = nn.Sequential(nn.Tanh())
    return (
        model,
        (lambda: setattr(nn.Tanh, "__call__", lambda self, x: x * 2)),
        None,
        lambda: delattr(nn.Tanh, "__call__"),
    )
