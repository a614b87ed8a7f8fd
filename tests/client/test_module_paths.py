"""PyTorch's module paths: what people import exists, and what cannot work says so when it is used."""

import importlib
import importlib.util
import subprocess
import sys

import pytest

import gradwire
from gradwire import compiler, hub, jit, library, overrides, profiler, torch_version, types
from gradwire._alias import distribution, imports
from gradwire._base import refused
from gradwire._paths import finder, modules, reexports, refusals
from gradwire._tensor.warnings import WARNED_ONCE
from gradwire.multiprocessing.spawn import ProcessRaisedException, spawn

PATHS = (
    "nn.modules nn.modules.linear nn.modules.batchnorm nn.modules.module nn.modules.utils nn.parallel "
    "nn.parallel.distributed nn.attention nn.attention.flex_attention nn.utils.prune optim.optimizer "
    "optim.adam utils._pytree utils.tensorboard utils.data.distributed utils.dlpack utils.model_zoo "
    "utils.cpp_extension jit jit.annotations onnx fx fx.graph_module hub types random serialization profiler "
    "overrides compiler cuda.amp cuda.nvtx multiprocessing distributed distributed.fsdp distributed.tensor "
    "__config__ version storage library testing autograd.profiler backends.mkldnn export quantization sparse "
    "special _C _utils "
)


@pytest.mark.parametrize("path", PATHS.split())
def test_a_module_that_people_import_exists(path: str) -> None:
    assert importlib.import_module(f"gradwire.{path}") is not None


def test_the_tables_are_of_pytorchs_modules_and_names() -> None:
    pytest.importorskip("torch")
    skipped = (
        "numa",
        "onnx._internal",
        "distributed",
        "utils.data.datapipes",
        "_dynamo",
        "nn.quantized",
        "cuda.sparse",
    )
    for path, names in refusals.REFUSED.items():
        if path.startswith(skipped) or path == "":
            continue
        try:
            theirs = importlib.import_module(f"torch.{path}")
        except ImportError:
            theirs = None
        lacking = [name for name in names.split() if not hasattr(theirs, name)]
        assert not lacking, (path, lacking)


def test_names_of_other_homes_are_the_same_objects() -> None:
    linear = importlib.import_module("gradwire.nn.modules.linear")
    assert linear.Linear is gradwire.nn.Linear
    assert importlib.import_module("gradwire.nn.modules.batchnorm")._NormBase.__subclasses__()
    assert importlib.import_module("gradwire.optim.optimizer").Optimizer is gradwire.optim.Optimizer
    assert modules.attribute("random", "manual_seed") is gradwire.manual_seed
    assert "nn.modules.linear" in reexports.REEXPORTS


def test_what_cannot_work_is_refused_when_it_is_used() -> None:
    fsdp = importlib.import_module("gradwire.distributed.fsdp")
    assert not isinstance(3, fsdp.FullyShardedDataParallel)
    assert fsdp.ShardingStrategy.FULL_SHARD == fsdp.ShardingStrategy.FULL_SHARD

    class Sharded(fsdp.FullyShardedDataParallel):
        pass

    for use in (
        Sharded,
        lambda: gradwire.onnx.export(None),
        lambda: gradwire.distributed.init_device_mesh("cpu", (1,)),
    ):
        with pytest.raises(NotImplementedError, match=r"gradwire does not support torch\."):
            use()
    assert gradwire.distributed.is_available() is True
    with pytest.raises(AttributeError, match="Did you mean: export"):
        gradwire.onnx.exportt  # noqa: B018
    with pytest.raises(NotImplementedError, match=r"gradwire does not support torch\.a\.B: no"):
        refused.refused("a.B", "no")()


def test_a_missing_module_is_named_with_what_there_is() -> None:
    with pytest.raises(
        ModuleNotFoundError, match=r"gradwire has no module 'torch\.nn\.nothing'\. Modules of torch.nn here:"
    ):
        importlib.import_module("gradwire.nn.nothing")
    assert importlib.util.find_spec("gradwire.nothing") is None
    assert isinstance(finder.missing("torch.nothing"), ModuleNotFoundError)


ALIASED = """
import importlib.metadata, importlib.util, sys
import gradwire
gradwire.alias()
gradwire.alias()
import torch
import torch.nn.modules.linear
assert torch is gradwire and torch.nn.modules.linear.Linear is gradwire.nn.Linear
assert importlib.metadata.version("torch") == "2.13.0" and torch.__name__ == "torch"
assert torch.__version__ >= (2, 4) and torch.__version__ < "3" and str(torch.__version__).startswith("2.13.0+gradwire")
assert importlib.util.find_spec("torch.nothing") is None
try:
    import torch.nothing.below
except ModuleNotFoundError as error:
    print(error.name, str(error).partition(".")[0])
"""


def test_the_alias_says_pytorchs_version_and_what_is_missing() -> None:
    done = subprocess.run([sys.executable, "-c", ALIASED], capture_output=True, text=True, check=False, timeout=200)
    assert (done.returncode, done.stdout) == (0, "torch.nothing gradwire has no module 'torch\n"), done.stderr
    assert distribution.AliasedDistribution().version == torch_version.COMPATIBLE
    assert callable(imports.alias)


def test_the_alias_is_refused_after_pytorch() -> None:
    pytest.importorskip("torch")
    program = "import torch, gradwire\ntry: gradwire.alias()\nexcept RuntimeError as error: print(error)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=200)
    assert "imported already" in done.stdout


def test_importing_gradwire_loads_no_table() -> None:
    program = "import sys, gradwire; print([name for name in sys.modules if name.startswith('gradwire.')])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=200)
    assert done.stdout == "[]\n"


@pytest.mark.usefixtures("session")
def test_scripting_returns_its_argument_with_a_warning() -> None:
    WARNED_ONCE.clear()
    with pytest.warns(UserWarning, match=r"no TorchScript: torch\.jit\.script"):
        assert jit.script(abs) is abs
    assert not jit.is_scripting()
    assert jit.wait(jit.fork(abs, -1)) == 1
    assert compiler.disable(abs) is abs
    assert types.Device is not None
    with pytest.raises(NotImplementedError, match=r"autograd\.profiler\.emit_nvtx"):
        profiler.emit_nvtx()


class Doubled:
    """A class whose instances are no tensors, and override functions."""

    @classmethod
    def __torch_function__(cls, function, kinds, args=(), kwargs=None):
        return (function.__name__, len(args))


@pytest.mark.usefixtures("session")
def test_an_object_may_override_functions() -> None:
    assert gradwire.matmul(gradwire.ones(2, 2), Doubled()) == ("matmul", 2)
    assert overrides.has_torch_function((1, Doubled()))
    assert overrides.handle_torch_function(gradwire.add, (Doubled(),), Doubled(), 1) == ("add", 2)
    with pytest.raises(TypeError):
        gradwire.matmul(gradwire.ones(2, 2), object())


@pytest.mark.usefixtures("session")
def test_a_tensor_of_one_element_may_be_a_number() -> None:
    x = gradwire.zeros(3)
    for value in (2.0, 3.0):
        x.add_(gradwire.ones(3), alpha=gradwire.tensor(value))
    assert x.tolist() == [5.0, 5.0, 5.0]
    drawn = gradwire.empty(2).uniform_(gradwire.tensor(1.0), gradwire.tensor([2.0]))
    assert bool(((drawn >= 1) & (drawn <= 2)).all())


@pytest.mark.usefixtures("session")
def test_ops_written_in_python_have_names_and_compiled_ones_are_refused() -> None:
    @library.custom_op("tests::double", mutates_args=())
    def double(x):
        return x * 2

    double.register_autograd(lambda ctx, grad: grad * 20)
    x = gradwire.ones(2, requires_grad=True)
    gradwire.ops.tests.double(x).sum().backward()
    assert x.grad.tolist() == [20.0, 20.0]
    with pytest.raises(NotImplementedError, match=r"torch\.ops\.other\.nms: an extension's compiled op"):
        gradwire.ops.other.nms(x)


def test_hub_loads_local_models(tmp_path) -> None:
    (tmp_path / "hubconf.py").write_text("def made(n):\n    'Makes n.'\n    return n\n")
    assert hub.load(str(tmp_path), "made", 3, source="local") == 3
    assert hub.list(str(tmp_path), source="local") == ["made"]
    with pytest.raises(NotImplementedError, match="source='local'"):
        hub.load("owner/repo", "made")


def _fail(index: int) -> None:
    if index == 1:
        raise ValueError("of process 1")


def test_a_failure_of_a_spawned_process_has_its_traceback() -> None:
    with pytest.raises(ProcessRaisedException, match="ValueError: of process 1"):
        spawn(_fail, nprocs=2)


@pytest.mark.usefixtures("session")
@pytest.mark.parametrize(
    "make",
    [
        lambda: gradwire.empty(2, device="meta"),
        lambda: gradwire.ones(2).to("meta"),
        lambda: gradwire.nn.Linear(2, 3, device="meta"),
        lambda: gradwire.nn.Linear(2, 3).to(gradwire.device("meta")),
        lambda: gradwire.nn.Linear(2, 3).to_empty(device="meta"),
        lambda: gradwire.device("meta").__enter__(),
        lambda: gradwire.set_default_device("meta"),
    ],
)
def test_tensors_without_values_are_refused_with_a_way_out(make: object) -> None:
    with pytest.raises(NotImplementedError, match=r"gradwire has no tensors without values.*skip_init"):
        make()
