"""torch.linalg, torch.fft and torch.special: the ops under PyTorch's names, over a real socket."""

import importlib
import subprocess
import sys

import pytest

import gradwire
from tests.client.oracle import agree

pytestmark = pytest.mark.usefixtures("session")


def test_ops_are_reached_by_their_namespace():
    def case(t):
        x = t.tensor([[2.0, 1.0], [1.0, 3.0]], requires_grad=True)
        (t.linalg.inv(x).sum() + t.linalg.det(x)).backward()
        spectrum = t.fft.rfft(x.detach())
        return x.grad, spectrum.real, t.special.expit(x.detach())

    agree(case)


@pytest.mark.parametrize("name", ["linalg", "fft", "special"])
def test_namespace_lists_what_it_has_and_nothing_else(name):
    module = importlib.import_module(f"gradwire.{name}")
    assert getattr(gradwire, name) is module
    assert len(dir(module)) > 5
    assert all(callable(getattr(module, item)) for item in dir(module))
    with pytest.raises(AttributeError, match=f"gradwire.{name}"):
        module.no_such_function  # noqa: B018


FAILING = {
    "inv": lambda t: t.linalg.inv(t.zeros(2, 2)),
    "cholesky": lambda t: t.linalg.cholesky(-t.eye(3)),
    "solve": lambda t: t.linalg.solve(t.zeros(3, 2, 2), t.ones(3, 2)),
    "svd": lambda t: t.linalg.svd(t.full((2, 2), float("nan"))),
    "svd in a batch": lambda t: t.linalg.svd(t.stack([t.eye(2), t.full((2, 2), float("nan"))])),
    "pinv": lambda t: t.linalg.pinv(t.full((2, 2), float("nan"))),
    "eig": lambda t: t.linalg.eig(t.full((2, 2), float("nan"))),
    "cholesky_inverse": lambda t: t.cholesky_inverse(t.zeros(2, 2)),
    "lu_factor": lambda t: t.linalg.lu_factor(t.zeros(2, 2)),
    "no square": lambda t: t.linalg.inv(t.ones(2, 3)),
}


@pytest.mark.parametrize("name", FAILING)
def test_failing_linear_algebra_raises_what_programs_catch(name):
    torch = pytest.importorskip("torch")

    def told(library):
        with pytest.raises(RuntimeError) as error:
            FAILING[name](library)
        return isinstance(error.value, library.linalg.LinAlgError), str(error.value).partition("\n")[0]

    assert told(gradwire) == told(torch)
    assert gradwire.linalg.LinAlgError is gradwire._C._LinAlgError


def test_the_accelerator_is_the_servers_gpu_or_none():
    assert gradwire.accelerator.is_available() == gradwire.cuda.is_available()
    assert gradwire.accelerator.device_count() == gradwire.cuda.device_count()
    found = gradwire.accelerator.current_accelerator()
    assert found == (gradwire.device("cuda") if gradwire.cuda.is_available() else None)
    if found is None:
        with pytest.raises(RuntimeError, match="no accelerator"):
            gradwire.accelerator.current_device_index()


def test_dims_may_be_named_as_in_numpy():
    def case(t):
        x = t.arange(6.0).reshape(2, 3).requires_grad_()
        y = x.softmax(axis=1) * x.sum(axis=0, keepdims=True) + t.cat([x, x], axis=1).cumsum(axis=1)[:, 3:]
        y.amax(axis=(0, 1)).backward()
        return y, x.grad, x.argmax(axis=0, keepdims=True), t.stack([x, x], axis=2).shape, x.unsqueeze(axis=0).shape

    agree(case)


def test_dim_that_is_needed_is_asked_for_by_name():
    with pytest.raises(TypeError, match="dim"):
        gradwire.ones(2).cumsum()


def test_any_module_may_be_the_first_that_is_imported():
    names = "func nn nn.utils.stateless optim autograd utils.data distributions array_api amp fft linalg special cuda"
    code = (
        "import importlib, sys\n"
        f"for name in {names.split()}:\n"
        "    for loaded in [one for one in sys.modules if one.startswith('gradwire') and '.v1' not in one]:\n"
        "        del sys.modules[loaded]\n"
        "    importlib.import_module('gradwire.' + name)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr[-1000:]
