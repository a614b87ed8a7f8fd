"""Checkpoints: files of torch.save are read and written, and tensors, modules and optimizers are pickled and copied."""

import copy
import ctypes
import io
import pickle
import subprocess
import sys
import zipfile

import numpy as np
import pytest

import gradwire
from gradwire import nn
from gradwire._functions import pickled
from gradwire._io import pytorch_globals, pytorch_reader, pytorch_writer

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("session")


def _content():
    base = torch.arange(12.0).reshape(3, 4)
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    return {
        "base": base, "transposed": base.t(), "part": base[1:, ::2], "half": torch.randn(4).bfloat16(),
        "state": model.state_dict(), "optimizer": optimizer.state_dict(),
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "leaf": torch.ones(2, requires_grad=True), "scalar": torch.tensor(3), "empty": torch.zeros(0, 3),
        "complex": torch.tensor([1 + 2j]),
        "bools": torch.tensor([True, False]), "n": 3, "x": 1.5, "z": 1 + 2j,
        "nested": [1, (2, None)], "set": {1, 2}, "size": torch.Size([1, 2]), "dtype": torch.bfloat16,
    }  # fmt: skip


def _assert_same(ours, theirs, path=""):
    if isinstance(theirs, torch.Tensor):
        made = gradwire.to_torch(ours.detach())
        assert (made.dtype, ours.requires_grad) == (theirs.dtype, theirs.requires_grad), path
        assert torch.equal(made, theirs.detach()), path
        assert isinstance(ours, nn.Parameter) == isinstance(theirs, torch.nn.Parameter), path
    elif isinstance(theirs, dict):
        assert list(ours) == list(theirs), path
        for key, value in theirs.items():
            _assert_same(ours[key], value, f"{path}.{key}")
    elif isinstance(theirs, (list, tuple)):
        for one, other in zip(ours, theirs, strict=True):
            _assert_same(one, other, path)
    elif isinstance(theirs, torch.dtype):
        assert str(ours) == str(theirs)
    else:
        assert (ours, type(ours)) == (theirs, type(theirs)), path


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
def test_a_file_of_pytorch_is_read(tmp_path, zipped):
    content = _content()
    torch.save(content, tmp_path / "x.pt", _use_new_zipfile_serialization=zipped)
    read = gradwire.load(tmp_path / "x.pt")
    _assert_same(read, content)
    assert read["part"].stride() == (4, 2)
    read["base"][1, 0] = 50.0  # tensors that shared memory share it again
    assert (read["transposed"][0, 1].item(), read["part"][0, 0].item()) == (50.0, 50.0)
    assert pytorch_reader.is_pytorch((tmp_path / "x.pt").read_bytes())


def test_a_file_of_gradwire_is_read_by_pytorch(tmp_path):
    torch.save(_content(), tmp_path / "x.pt")
    ours = gradwire.load(tmp_path / "x.pt")
    ours["unsigned"] = gradwire.tensor([1, 2], dtype=gradwire.uint16)
    gradwire.save(ours, tmp_path / "y.pth")
    _assert_same(ours, torch.load(tmp_path / "y.pth", weights_only=True))
    state = nn.Linear(2, 3).state_dict()
    gradwire.save(state, tmp_path / "model.pt")
    torch.nn.Linear(2, 3).load_state_dict(torch.load(tmp_path / "model.pt", weights_only=True))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(2, 3)
        self.rest = nn.Sequential(nn.ReLU(), nn.BatchNorm1d(3))
        self.register_buffer("scale", gradwire.ones(3))

    def forward(self, x):
        return self.rest(self.first(x)) * self.scale


def test_modules_and_optimizers_are_pickled_and_copied(tmp_path):
    gradwire.manual_seed(0)  # other numbers may leave no unit that has a gradient
    net, x = Net(), gradwire.randn(4, 2)
    optimizer = gradwire.optim.Adam(net.parameters())
    net(x).sum().backward()
    optimizer.step()
    expected = net(x)
    for made, steps in (copy.deepcopy((net, optimizer)), pickle.loads(pickle.dumps((net, optimizer)))):
        assert [each.name for each in made.parameters()] == [name for name, _ in net.named_parameters()]
        made.eval()
        net.eval()
        assert gradwire.equal(made(x), net(x))
        steps.zero_grad()
        made(x).sum().backward()
        before = made.first.weight.detach().clone()
        steps.step()
        assert not gradwire.equal(before, made.first.weight)
        net.train()
    assert expected.shape == (4, 3)
    gradwire.save(net, tmp_path / "net.pt")
    with pytest.raises(pickle.UnpicklingError, match="Weights only load failed"):
        gradwire.load(tmp_path / "net.pt")
    with pytorch_globals.safe_globals([]):
        loaded = gradwire.load(tmp_path / "net.pt", weights_only=False)
    assert gradwire.equal(loaded.first.weight, net.first.weight)


def test_tensors_are_pickled():
    for made in (gradwire.ones(2, requires_grad=True), nn.Parameter(gradwire.ones(2).bfloat16()), gradwire.arange(3)):
        again = pickle.loads(pickle.dumps(made))
        assert (type(again), again.dtype, again.requires_grad) == (type(made), made.dtype, made.requires_grad)
        assert again.tolist() == made.tolist()
    assert pickled.stored_array(gradwire.ones(1).bfloat16()).dtype == np.uint16


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "complex64", "bool"])
def test_a_tensor_without_dimensions_is_pickled_and_saved_without_them(dtype, tmp_path):
    made = gradwire.tensor(1.5).to(getattr(gradwire, dtype))
    gradwire.save(made, tmp_path / "made.pt")
    for again in (pickle.loads(pickle.dumps(made)), gradwire.load(tmp_path / "made.pt")):
        assert (again.shape, again.dtype, again.item()) == ((), made.dtype, made.item())


def test_arrays_and_numbers_of_numpy_are_saved(tmp_path):
    for name in ("x.pt", "x"):
        gradwire.save({"array": np.arange(3), "number": np.float64(2.5)}, tmp_path / name)
        read = gradwire.load(tmp_path / name)
        assert (read["array"].tolist(), float(read["number"])) == ([0, 1, 2], 2.5)


class Evil:
    def __reduce__(self):
        return (print, ("run",))


def test_weights_only_runs_no_code(tmp_path, capsys):
    torch.save({"a": Evil()}, tmp_path / "evil.pt")
    with pytest.raises(pickle.UnpicklingError, match=r"builtins\.print"):
        gradwire.load(tmp_path / "evil.pt")
    assert capsys.readouterr().out == ""


def test_damaged_files_are_refused(tmp_path):
    content = pytorch_writer.written({"a": gradwire.ones(4)})
    path = tmp_path / "x.pt"
    path.write_bytes(content[:200])
    with pytest.raises(RuntimeError, match="not a complete file"):
        gradwire.load(path)
    with zipfile.ZipFile(io.BytesIO(content)) as source, zipfile.ZipFile(path, "w") as target:
        for name in source.namelist():
            target.writestr(name, source.read(name)[:8] if "/data/" in name else source.read(name))
    with pytest.raises(RuntimeError, match="4 elements has 8 bytes"):
        gradwire.load(path)
    torch.jit.save(torch.jit.script(torch.nn.Linear(1, 1)), str(path))
    with pytest.raises(NotImplementedError, match=r"torch\.jit\.save"):
        gradwire.load(path)


def test_devices_of_a_file_are_mapped(tmp_path):
    torch.save(torch.ones(2), tmp_path / "x.pt")
    for place in ("cpu", gradwire.device("cpu"), {"cpu": "cpu"}, lambda storage, location: storage, None):
        assert gradwire.load(tmp_path / "x.pt", map_location=place).device == gradwire.device("cpu")


def test_an_object_that_cannot_be_pickled_is_refused(tmp_path):
    with pytest.raises(pickle.PicklingError, match="lambda"):
        gradwire.save({"a": lambda: 0}, tmp_path / "x.pt")
    assert not (tmp_path / "x.pt").exists()


def test_storages_tell_which_tensors_share_memory():
    x = gradwire.ones(4)
    assert x.data_ptr() == x.detach().data_ptr() == x.untyped_storage().data_ptr()
    assert x[1:].untyped_storage() == x.untyped_storage() != x.clone().untyped_storage()
    assert x[1:].untyped_storage().nbytes() == 16


def geometry(library):
    """Where views and what shares memory with them begin, in elements and bytes from the base's first."""
    x = library.zeros(4, 3)
    z = library.zeros(3, dtype=library.complex64)
    rows = x[1:]
    detached = rows.detach()
    views = [
        x,
        rows,
        detached,
        detached[1:],
        x.t(),
        x[:, 1],
        x[::2, 2:],
        rows.data[2],
        x.view(-1)[5:],
        x.diagonal(1),
    ]
    views += [
        *x.unbind(1),
        *x.chunk(2),
        x.expand(2, 4, 3)[1:],
        x.as_strided((2, 2), (1, 2), 4),
        x.clone()[2:][1:].clone(),
    ]
    found = [
        (v.storage_offset(), int(v.data_ptr() - v.untyped_storage().data_ptr()) if v.numel() else 0) for v in views
    ]
    parts = [(v.storage_offset(), v.data_ptr() - z.data_ptr()) for v in (z.real, z.imag, z[1:].imag)]
    y = library.zeros(3, 2)
    y.t_()
    same = [x.is_set_to(v) for v in (x, x.view(4, 3), x.view(3, 4), x[0:], x[1:], x.clone(), x.t())]
    return found, parts, y.storage_offset(), same, rows.is_set_to(x[1:]), detached[1:].is_set_to(x[2:])


def test_views_begin_where_pytorchs_do():
    assert geometry(gradwire) == geometry(torch)


def test_c_functions_read_a_copy_that_lives_as_long_as_the_tensor():
    x = gradwire.tensor([1.0, 2.0, 3.0])

    def read():
        pointer = ctypes.cast(x.data_ptr() + 4, ctypes.POINTER(ctypes.c_float))
        return np.ctypeslib.as_array(pointer, (2,))

    first = read()
    assert first.tolist() == [2.0, 3.0]
    x.add_(1.0)
    assert read().tolist() == first.tolist() == [3.0, 4.0]
    pointer = ctypes.cast(x[1:].data_ptr(), ctypes.POINTER(ctypes.c_float))
    assert np.ctypeslib.as_array(pointer, (2,)).tolist() == [3.0, 4.0]
    with pytest.raises(ctypes.ArgumentError, match="contiguous"):
        ctypes.cast(gradwire.zeros(3, 3).t().data_ptr(), ctypes.POINTER(ctypes.c_float))


def test_files_of_safetensors_for_pytorch(tmp_path):
    program = """
import gradwire
gradwire.alias()
import torch
from safetensors.torch import load_file, save_file
state = {name: torch.randn(50, 30) for name in "abcdef"} | {"half": torch.ones(3).bfloat16()}
save_file(state, "x.safetensors")
assert all(torch.equal(value, state[name]) for name, value in load_file("x.safetensors").items())
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stderr


def test_buffers_are_registered_when_they_are_assigned():
    net = nn.Module()
    net.kept, net.passing = nn.Buffer(gradwire.ones(2)), nn.Buffer(gradwire.ones(2), persistent=False)
    assert [name for name, _ in net.named_buffers()] == ["kept", "passing"]
    assert list(net.state_dict()) == ["kept"]
    assert isinstance(net.kept, nn.Buffer)


def test_state_hooks_are_called():
    net, calls = Net(), []
    net.register_state_dict_pre_hook(lambda *args: calls.append("pre"))
    net.first.register_state_dict_post_hook(lambda module, state, prefix, metadata: calls.append(prefix))
    net.first.register_load_state_dict_pre_hook(lambda module, state, prefix, *rest: calls.append("load " + prefix))
    net.register_load_state_dict_post_hook(lambda module, keys: calls.append(keys.missing_keys))
    state = net.state_dict()
    assert state._metadata["first"] == {"version": 1}
    net.load_state_dict(state)
    assert calls == ["pre", "first.", "load first.", []]
