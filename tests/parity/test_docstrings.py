"""The examples of docstrings: the runner finds what agrees, what differs, and what PyTorch itself prints anew."""

import pytest

pytest.importorskip("torch")

from tests.parity import docstrings


def test_texts_agree_to_three_digits_apart_from_addresses() -> None:
    assert docstrings._agree("tensor([1.0000, 2.5]) <A object at 0x1f>", "tensor([1.0002,  2.5]) <A object at 0x2e>")
    assert not docstrings._agree("tensor([1.0, 2.5])", "tensor([1.0, 2.6])")
    assert not docstrings._agree("torch.Size([2])", "torch.Size([2, 3])")
    assert docstrings._agree("<built-in method dot of type object at 0x1>", "<function dot at 0x2>")


def test_it_runs_both_libraries(capsys: pytest.CaptureFixture[str]) -> None:
    docstrings.compare(["torch.asarray", "torch.sparse.mm"])
    printed = capsys.readouterr().out
    assert "torch.sparse.mm: y2" in printed
    assert "torch.asarray:" not in printed
    assert printed.endswith("1 of 2 docstrings (50.0%), 25 of 28 examples\n"), printed
