"""Each example learns what PyTorch learns: the same file with the other import, from the same weights, in float64."""

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import gradwire

torch = pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")

EXAMPLES = Path(__file__).parents[2] / "examples"
STEPS = 5


def load(name: str, library: str, folder: Path) -> ModuleType:
    """An example as a module, with gradwire or with PyTorch under the name `torch`."""
    source = (EXAMPLES / f"{name}.py").read_text("utf-8")
    assert "import gradwire as torch" in source
    if library == "torch":
        source = re.sub(r"^import gradwire\b", "import torch", source, flags=re.MULTILINE)
    path = folder / f"{name}_{library}.py"
    path.write_text(source, "utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[path.stem]
    return module


@pytest.fixture
def beside(session, tmp_path, monkeypatch):
    """The two modules of an example, with float64 as the default dtype of both libraries."""
    monkeypatch.setattr(torch, "compile", lambda function: function)
    for library in (gradwire, torch):
        library.set_default_dtype(library.float64)
        library.manual_seed(0)
    yield lambda name: (load(name, "gradwire", tmp_path), load(name, "torch", tmp_path))
    for library in (gradwire, torch):
        library.set_default_dtype(library.float32)


def share_weights(ours, theirs) -> None:
    """PyTorch's module takes over the numbers of ours."""
    theirs.load_state_dict({name: torch.from_numpy(np.array(t)) for name, t in ours.state_dict().items()})


def test_digits_cnn_takes_the_same_steps(beside):
    pytest.importorskip("sklearn", reason="needs scikit-learn, of the extra [demo]")
    ours, theirs = beside("digits_cnn")
    models = ours.build(), theirs.build()
    share_weights(*models)
    rng = np.random.default_rng(0)
    batches = [(rng.random((16, 1, 8, 8)), rng.integers(0, 10, 16)) for _ in range(STEPS)]
    losses = []
    for module, model in zip((ours, theirs), models, strict=True):
        step = module.torch.compile(module.make_step(model))
        losses.append([step(module.torch.tensor(X), module.torch.tensor(y)).item() for X, y in batches])
    assert losses[0] == pytest.approx(losses[1], rel=1e-10)
    images, digits = batches[0]
    scores = []
    for module, model in zip((ours, theirs), models, strict=True):
        scores.append(module.accuracy(model, module.torch.tensor(images), module.torch.tensor(digits)))
    assert scores[0] == scores[1]


def test_digits_mlp_takes_the_same_steps(beside, monkeypatch):
    for needed in ("sklearn", "matplotlib", "tqdm"):
        pytest.importorskip(needed, reason=f"needs {needed}, of the extra [demo]")
    ours, theirs = beside("digits_mlp")
    models = [
        module.nn.Sequential(module.nn.Linear(64, 8), module.nn.ReLU(), module.nn.Linear(8, 10))
        for module in (ours, theirs)
    ]
    share_weights(*models)
    rng = np.random.default_rng(0)
    images, digits, order = rng.random((150, 64)), rng.integers(0, 10, 150), rng.permutation(150)
    losses, scores = [], []
    for module, model in zip((ours, theirs), models, strict=True):
        monkeypatch.setattr(module.torch, "randperm", lambda n, t=module.torch: t.tensor(order))
        X, y = module.torch.tensor(images), module.torch.tensor(digits)
        losses.append(module.train(model, X, y, epochs=2)[0])
        scores.append(module.accuracy(model, X, y))
    assert losses[0] == pytest.approx(losses[1], rel=1e-10)
    assert scores[0] == scores[1]


def test_char_transformer_takes_the_same_steps(beside):
    ours, theirs = beside("char_transformer")
    models = ours.Writer(20, layers=1), theirs.Writer(20, layers=1)
    share_weights(*models)
    batches = np.random.default_rng(0).integers(0, 20, (STEPS, 4, ours.CONTEXT + 1))
    losses = []
    for module, model in zip((ours, theirs), models, strict=True):
        step = module.torch.compile(module.make_step(model))
        losses.append([step(module.torch.tensor(windows)).item() for windows in batches])
    assert losses[0] == pytest.approx(losses[1], rel=1e-9)


def test_heat_pinn_takes_the_same_steps(beside):
    pytest.importorskip("matplotlib", reason="needs matplotlib, of the extra [demo]")
    ours, theirs = beside("heat_pinn")
    models = ours.build(), theirs.build()
    share_weights(*models)
    losses, errors = zip(
        *(
            (m.train(model, m.Problem(24), adam=STEPS, lbfgs=20), m.compare(model, side=8))
            for m, model in zip((ours, theirs), models, strict=True)
        ),
        strict=True,
    )
    # LBFGS decides by the last digits which way it goes, so the two part a little.
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
    assert errors[0] == pytest.approx(errors[1], rel=1e-3)


@pytest.mark.parametrize("threads", [1, 3])
def test_logistic_regression_of_threads_is_that_of_one(beside, threads):
    ours, theirs = beside("logistic_threads")
    points, sides, _ = ours.make_data(60, 4)
    found, losses = ours.train(points, sides, threads, STEPS)
    expected, expected_losses = theirs.train(points, sides, 1, STEPS)
    assert found == pytest.approx(expected, rel=1e-12)
    assert losses == pytest.approx(expected_losses, rel=1e-12)
