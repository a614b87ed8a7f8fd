"""save and load, and tensors from and to other libraries, beside PyTorch."""

import io
import os
import sys

import numpy as np
import pytest

import gradwire
from gradwire import nn, optim

pytestmark = pytest.mark.usefixtures("session")

DTYPES = [
    "float64",
    "float32",
    "float16",
    "bfloat16",
    "int64",
    "int32",
    "int16",
    "int8",
    "uint8",
    "bool",
    "complex64",
    "complex128",
]


def make(module, name):
    values = [0, 1, 1] if name == "bool" else [0, 1, 3]
    return module.tensor(values, dtype=getattr(module, name))


def test_every_dtype_is_loaded_with_its_bits(tmp_path):
    state = {name: make(gradwire, name) for name in DTYPES}
    state["empty"] = gradwire.zeros(0, 3)
    state["number"] = gradwire.tensor(2.5)
    state["view"] = gradwire.arange(6).reshape(2, 3).T
    gradwire.save(state, tmp_path / "all.safetensors")
    found = gradwire.load(tmp_path / "all.safetensors")
    assert list(found) == list(state)
    for name, value in state.items():
        assert found[name].dtype is value.dtype
        assert found[name].shape == value.shape
        assert found[name].tolist() == value.tolist()


def test_nested_values_are_loaded_unchanged(tmp_path):
    shared = gradwire.tensor([1.0])
    value = {
        "a": [1, 2.5, (None, True, "text"), float("inf"), 3 + 4j],
        7: {"shared": shared, "again": shared, "w": nn.Parameter(gradwire.ones(2))},
        "size": gradwire.ones(2, 3).shape,
        "dtype": gradwire.float64,
        "leaf": gradwire.ones(1, requires_grad=True),
        "numpy": np.float64(0.5),
    }
    gradwire.save(value, tmp_path / "nested")
    found = gradwire.load(tmp_path / "nested")
    assert found["a"] == value["a"]
    assert type(found["a"][2]) is tuple
    assert found[7]["shared"] is found[7]["again"]
    assert isinstance(found[7]["w"], nn.Parameter) and found[7]["w"].requires_grad
    assert isinstance(found["size"], gradwire.Size) and found["size"] == (2, 3)
    assert found["dtype"] is gradwire.float64
    assert found["leaf"].requires_grad and found["leaf"].is_leaf
    assert found["numpy"] == 0.5


def test_a_single_tensor_and_a_file_object():
    file = io.BytesIO()
    gradwire.save(gradwire.tensor([[1.0, 2.0]]), file)
    file.seek(0)
    assert gradwire.load(file).tolist() == [[1.0, 2.0]]


def test_training_continues_from_a_checkpoint_as_if_never_stopped(tmp_path):
    def trainer():
        gradwire.manual_seed(3)
        net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
        return net, optim.Adam(net.parameters(), lr=0.05)

    def steps(net, optimizer, count):
        x = gradwire.linspace(-1, 1, 12).reshape(4, 3)
        for _ in range(count):
            optimizer.zero_grad()
            net(x).pow(2).sum().backward()
            optimizer.step()

    net, optimizer = trainer()
    steps(net, optimizer, 3)
    gradwire.save({"net": net.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "checkpoint")
    steps(net, optimizer, 3)
    other, second = trainer()
    checkpoint = gradwire.load(tmp_path / "checkpoint")
    other.load_state_dict(checkpoint["net"])
    second.load_state_dict(checkpoint["optimizer"])
    steps(other, second, 3)
    for one, two in zip(net.parameters(), other.parameters(), strict=True):
        assert one.tolist() == two.tolist()


def test_a_pytorch_checkpoint_loads_by_name_and_goes_back(tmp_path):
    torch = pytest.importorskip("torch")
    from safetensors.torch import load_file, save_file

    torch.manual_seed(0)  # of two rows that come out alike the normalization would magnify the last bits
    theirs = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    save_file(theirs.state_dict(), tmp_path / "theirs.safetensors")
    ours = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    ours.load_state_dict(gradwire.load(tmp_path / "theirs.safetensors"))
    x = [[1.0, 2.0, 3.0], [0.5, -1.0, 0.0]]
    expected = theirs(torch.tensor(x))
    assert np.allclose(ours(gradwire.tensor(x)).detach().numpy(), expected.detach().numpy(), atol=1e-6)
    gradwire.save(ours.state_dict(), tmp_path / "ours.safetensors")
    theirs.load_state_dict(load_file(tmp_path / "ours.safetensors"))
    assert torch.equal(theirs[1].running_mean, torch.tensor(ours[1].running_mean.tolist()))


def test_a_checkpoint_of_another_model_changes_nothing(tmp_path):
    gradwire.save(nn.Linear(3, 2).state_dict(), tmp_path / "other")
    net = nn.Linear(2, 2)
    before = net.weight.tolist(), net.bias.tolist()
    with pytest.raises(RuntimeError, match="size mismatch for weight"):
        net.load_state_dict(gradwire.load(tmp_path / "other"))
    assert (net.weight.tolist(), net.bias.tolist()) == before


def test_a_file_cut_anywhere_is_refused(tmp_path):
    path = tmp_path / "whole"
    gradwire.save({"a": gradwire.ones(10), "b": [1, gradwire.zeros(3)]}, path)
    whole = path.read_bytes()
    for size in (1, 7, 8, 20, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(RuntimeError, match="safetensors"):
            gradwire.load(path)
    path.write_bytes(b"")
    with pytest.raises(EOFError):
        gradwire.load(path)
    with pytest.raises(FileNotFoundError):
        gradwire.load(tmp_path / "nowhere")


def test_a_description_that_does_not_fit_is_refused(tmp_path):
    from safetensors.numpy import save_file

    for description in ("{", "[]", '{"format": 1, "tree": {"tensor": "no"}}', '{"format": 1, "tree": {"run": "x"}}'):
        save_file({"a": np.ones(2)}, tmp_path / "odd", {"gradwire": description})
        with pytest.raises(RuntimeError, match="damaged"):
            gradwire.load(tmp_path / "odd")
    save_file({"a": np.ones(2)}, tmp_path / "odd", {"gradwire": '{"format": 99, "tree": {}}'})
    with pytest.raises(RuntimeError, match="format 99"):
        gradwire.load(tmp_path / "odd")


def test_what_cannot_be_saved_is_named_and_the_old_file_stays(tmp_path):
    path = tmp_path / "state.safetensors"
    gradwire.save({"a": 1}, path)
    with pytest.raises(TypeError, match=r"a\.1 is a object"):
        gradwire.save({"a": [gradwire.ones(1), object()]}, path)
    assert gradwire.load(path) == {"a": 1}
    assert os.listdir(tmp_path) == ["state.safetensors"]


def test_without_safetensors_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(ImportError, match=r"gradwire\[files\]"):
        gradwire.save({}, tmp_path / "state.safetensors")
    gradwire.save({"a": 1}, tmp_path / "state")  # in PyTorch's format
    assert gradwire.load(tmp_path / "state") == {"a": 1}


# Other libraries in this process.


def test_arrays_go_both_ways_by_dlpack():
    for name in DTYPES:
        if name == "bfloat16":
            continue
        value = make(gradwire, name)
        there = np.from_dlpack(value)
        assert there.dtype == value.dtype.numpy and there.tolist() == value.tolist()
        back = gradwire.from_dlpack(there)
        assert back.dtype is value.dtype and back.tolist() == value.tolist()
    assert gradwire.ones(1).__dlpack_device__() == (1, 0)


def test_dlpack_refusals():
    with pytest.raises(BufferError, match="require gradient"):
        np.from_dlpack(gradwire.ones(2, requires_grad=True))
    with pytest.raises(BufferError, match="bfloat16"):
        np.from_dlpack(gradwire.ones(2, dtype=gradwire.bfloat16))
    with pytest.raises(TypeError, match="__dlpack__"):
        gradwire.from_dlpack([1, 2])
    with pytest.raises(ValueError, match="share memory"):
        gradwire.from_dlpack(np.ones(2), copy=False)


def test_torch_reads_a_tensor_by_dlpack():
    torch = pytest.importorskip("torch")
    assert torch.equal(torch.from_dlpack(gradwire.arange(6).reshape(2, 3)), torch.arange(6).reshape(2, 3))


def test_tensors_go_to_torch_and_back():
    torch = pytest.importorskip("torch")
    for name in DTYPES:
        there = gradwire.to_torch(make(gradwire, name))
        assert there.dtype is getattr(torch, name) and torch.equal(there, make(torch, name))
        back = gradwire.from_torch(there)
        assert back.dtype is getattr(gradwire, name) and back.tolist() == there.tolist()
    weight = torch.ones(2, requires_grad=True)
    assert gradwire.from_torch(weight).requires_grad
    assert gradwire.to_torch(gradwire.from_torch(weight)).requires_grad
    assert not gradwire.from_torch(weight * 2).requires_grad
    assert gradwire.from_torch(torch.arange(6).reshape(2, 3).T).tolist() == [[0, 3], [1, 4], [2, 5]]
    with pytest.raises(RuntimeError, match="detach"):
        gradwire.to_torch(gradwire.ones(1, requires_grad=True) * 2)
    with pytest.raises(TypeError, match="dense"):
        gradwire.from_torch(np.ones(2))


def test_the_error_for_an_unsupported_object_says_what_to_save_instead(tmp_path):
    path = tmp_path / "held.safetensors"
    with pytest.raises(TypeError, match=r"is a Linear; .*save its state_dict\(\)"):
        gradwire.save({"model": gradwire.nn.Linear(2, 2)}, path)
    with pytest.raises(TypeError, match="from_numpy"):
        gradwire.save({"held": np.ones(2)}, path)
    itself = []
    itself.append(itself)
    with pytest.raises(TypeError, match="contains itself"):
        gradwire.save(itself, path)
    assert not list(tmp_path.iterdir())


def test_a_description_nested_too_deep_is_damage(tmp_path):
    from safetensors.numpy import save_file

    path = tmp_path / "deep.safetensors"
    save_file({"w": np.ones(2)}, path, metadata={"gradwire": '{"format": 1, "tree": ' + '{"list":[' * 50_000})
    with pytest.raises(RuntimeError, match="description is damaged"):
        gradwire.load(path)


@pytest.mark.parametrize(
    "tree",
    [
        '{"dict": [[{"value": [1]}, {"value": 1}]]}',
        '{"dict": [[{"tensor": "i"}, {"value": 1}]]}',
        '{"tensor": "i", "requires_grad": true}',
    ],
)
def test_a_description_that_makes_nothing_is_damage_before_anything_is_made(tmp_path, tree):
    from safetensors.numpy import save_file

    path = tmp_path / "held.safetensors"
    save_file({"i": np.ones(2, np.int64)}, path, metadata={"gradwire": '{"format": 1, "tree": ' + tree + "}"})
    with pytest.raises(RuntimeError, match="description is damaged"):
        gradwire.load(path)
