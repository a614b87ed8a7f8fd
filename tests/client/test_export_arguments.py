"""Arguments, results and memory of exported programs: what a file cannot tell is refused, never computed otherwise."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gradwire as torch
from gradwire.export import LoadedFile


def reloaded(function: Callable[..., Any], *args: Any, **kwargs: Any) -> LoadedFile:
    """The function as a file, loaded again."""
    file = io.BytesIO()
    torch.export(function, *args, path=file, **kwargs)
    return torch.load_program(io.BytesIO(file.getvalue()))


def difference(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x - 2 * y).sum()


def test_the_keys_of_a_dictionary_bind_whatever_their_order(session: torch.Session) -> None:
    x, y = torch.randn(4), torch.randn(4)
    batch = {"x": x, "y": y}
    loaded = reloaded(lambda batch: difference(batch["x"], batch["y"]), batch)
    turned = {"y": y, "x": x}
    assert loaded(turned).item() == loaded(batch=turned).item() == loaded(batch).item()
    torch.testing.assert_close(loaded(turned), difference(x, y))
    with pytest.raises(TypeError, match=r"an argument with x, z fits no inputs; they are batch\.x, batch\.y"):
        loaded({"x": x, "z": y})


def test_nested_and_variadic_arguments_bind_by_their_places(session: torch.Session) -> None:
    x, y, z = torch.randn(4), torch.randn(4), torch.randn(4)

    def nested(first: Any, *rest: Any) -> torch.Tensor:
        return first[0] - 2 * first[1]["a"] + 3 * rest[0]["b"] * rest[1]

    loaded = reloaded(nested, (x, {"a": y}), {"b": z}, x)
    torch.testing.assert_close(loaded((z, {"a": x}), {"b": y}, x), nested((z, {"a": x}), {"b": y}, x))


def test_a_number_is_refused_because_the_program_keeps_the_example(session: torch.Session) -> None:
    x = torch.randn(4)
    loaded = reloaded(lambda x, scale, mask: x * scale, x, 2.0, None)
    assert loaded(x, None).tolist() == (x * 2).tolist()
    with pytest.raises(TypeError, match="takes tensors, not a float: other arguments keep the values of the example"):
        loaded(x, 5.0)


def test_an_input_given_twice_is_refused(session: torch.Session) -> None:
    x = torch.randn(4)
    with pytest.raises(TypeError, match="got two tensors for its input 'x'"):
        reloaded(difference, x, x)(x, x, x=x)


def test_one_tensor_may_be_the_example_of_two_inputs(session: torch.Session) -> None:
    x, y = torch.randn(4), torch.randn(4)
    torch.testing.assert_close(reloaded(difference, x, x)(x, y), difference(x, y))
    torch.testing.assert_close(reloaded(lambda pair: difference(*pair), [x, x])([x, y]), difference(x, y))
    torch.testing.assert_close(reloaded(lambda y: difference(x, y), x)(y), difference(x, y))


def test_unknown_sliced_inputs_are_refused(session: torch.Session) -> None:
    x, y = torch.randn(8), torch.randn(8)
    loaded = reloaded(difference, x[:4], y[:4], dynamic=["x", "y"])["program"]
    rows = loaded.run({"x": x, "y": y}, repeat=2, sliced=["x", "y"], stacked=True)
    torch.testing.assert_close(rows[1], difference(x[4:], y[4:]))
    for sliced in (["x", "Y"], "xy"):
        with pytest.raises(TypeError, match="sliced must be a list of inputs"):
            loaded.run({"x": x, "y": y}, repeat=2, sliced=sliced)


def test_tensors_of_another_session_are_refused(server_address: str) -> None:
    with torch.connect(server_address):
        weight = torch.ones(3)
        loaded = reloaded(lambda x: x * weight, torch.ones(3))
        with torch.connect(server_address):
            other = torch.ones(3)
        with pytest.raises(ValueError, match="the tensors are of two sessions"):
            loaded(other)


def test_results_keep_their_places(session: torch.Session) -> None:
    x = torch.randn(4)
    nothing, double, (last,) = reloaded(lambda x: [None, x * 2, (x + 1,)], x)(x)
    assert nothing is None and double.tolist() == (x * 2).tolist() and last.tolist() == (x + 1).tolist()
    with pytest.raises(NotImplementedError, match="the function returns a float at 1: return tensors only"):
        torch.export(lambda x: (x, 3.0), x)
    with pytest.raises(NotImplementedError, match="the function returns a dict_values: return tensors only"):
        torch.export(lambda x: {"a": x}.values(), x)
    with pytest.raises(NotImplementedError, match='only key is "output"'):
        torch.export(lambda x: {"output": x * 2}, x)


def test_an_argument_that_the_function_changes_is_as_before(session: torch.Session) -> None:
    x = torch.zeros(3)
    loaded = reloaded(lambda x: x.add_(1).sum(), x)
    assert x.tolist() == [0, 0, 0]
    assert loaded(x).item() == 3 and x.tolist() == [1, 1, 1]


def _by_view() -> tuple[torch.Tensor, torch.Tensor]:
    base = torch.zeros(4)
    return base, base[:2]


def _by_detach() -> tuple[torch.Tensor, torch.Tensor]:
    base = torch.ones(4, requires_grad=True)
    return base.detach(), base


def _by_data() -> tuple[torch.Tensor, torch.Tensor]:
    base = torch.ones(4, requires_grad=True)
    return base.data, base


def _by_assigned_data() -> tuple[torch.Tensor, torch.Tensor]:
    base, other = torch.ones(4), torch.zeros(4)
    base.data = other
    return base, other


@pytest.mark.parametrize("make", [_by_view, _by_detach, _by_data, _by_assigned_data])
def test_a_change_of_shared_memory_is_refused(session: torch.Session, make: Callable[[], Any]) -> None:
    changed, seen = make()

    def step(x: torch.Tensor) -> torch.Tensor:
        changed.add_(x)
        return seen.sum()

    before = changed.tolist()
    with pytest.raises(NotImplementedError, match="the function changes changed, which shares memory with seen"):
        torch.export(step, torch.ones(4))
    assert changed.tolist() == before
    first = changed[0].item()
    assert reloaded(lambda x: changed[0] + 0 * seen.sum(), torch.ones(4))(torch.ones(4)).item() == first


def test_a_change_of_a_tensor_without_a_variable_is_refused(session: torch.Session) -> None:
    box = type("Box", (), {"__slots__": ("total",)})()
    box.total = torch.zeros(3)

    def step(x: torch.Tensor) -> torch.Tensor:
        box.total.add_(x)
        return box.total.sum()

    with pytest.raises(NotImplementedError, match="changes a tensor in place to which no variable leads"):
        torch.export(step, torch.ones(3))
    assert reloaded(lambda x: box.total.sum() * 0 + x.sum(), torch.ones(3))(torch.ones(3)).item() == 3


def test_a_damaged_program_in_a_file_is_refused(session: torch.Session) -> None:
    weight = torch.ones(3)
    file = io.BytesIO()
    torch.export(lambda x: x * weight, torch.ones(3), path=file)
    content = bytearray(file.getvalue())
    at = content.index(b"\n\x07program") + 9  # the field of the program's bytes
    assert content[at] == 0x12
    content[at + 2 : at + 6] = b"\xff" * 4
    with pytest.raises(RuntimeError, match="is no program file"):
        torch.load_program(io.BytesIO(bytes(content)))


def test_an_interrupted_save_leaves_the_earlier_file(
    session: torch.Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.safetensors"
    weight = torch.ones(3)
    torch.export(lambda x: weight.add_(x).sum(), torch.ones(3), path=path)
    loaded, before = torch.load_program(path), path.read_bytes()
    loaded(torch.ones(3))

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("os.replace", interrupted)
        with pytest.raises(KeyboardInterrupt):
            loaded.save(path)
    assert path.read_bytes() == before and [each.name for each in tmp_path.iterdir()] == [path.name]
    loaded.save(path)
    assert torch.load_program(path).state["weight"].tolist() == [2, 2, 2]
