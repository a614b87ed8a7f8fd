"""The runner of OpInfo's samples tells agreement from difference, and counts both."""

import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="PyTorch ships the samples")
pytest.importorskip("expecttest", reason="PyTorch's samples need it")


def test_it_counts_the_samples_that_agree(tmp_path):
    arguments = ["add", "linalg.svd", "--samples", "2", "--dtypes", "float32", "--log", str(tmp_path / "log")]
    run = [sys.executable, "-m", "tests.parity.opinfo", *arguments]
    printed = subprocess.run(run, capture_output=True, text=True, check=True, timeout=600).stdout
    assert "function: 4 of 4 samples (100.00%), 2 of 2 operators" in printed
    assert "out: 4 of 4 samples" in printed


def test_it_finds_what_differs():
    import gradwire as gw
    from tests.parity.opinfo import compare

    def difference(theirs, ours):
        with pytest.raises(compare.Difference) as found:
            compare.results("result", theirs, ours, grads=True)
        return str(found.value)

    ones = torch.ones(2)
    assert "requires_grad" in difference(ones, gw.ones(2, requires_grad=True))
    assert "dtype" in difference(ones, gw.ones(2, dtype=gw.float64))
    assert "shape" in difference(ones, gw.ones(3))
    assert "not close" in difference(ones, gw.ones(2) * 1.01)
    precise = torch.ones(2, dtype=torch.float64) * 1.001
    compare.results("result", ones, gw.ones(2) * 1.0015, grads=True, precise=precise)
    with pytest.raises(compare.Difference, match="not close"):
        compare.results("result", ones, gw.ones(2) * 1.0025, grads=True, precise=precise)
    with pytest.raises(compare.Difference, match="None instead of a tensor"):
        compare.gradients("gradient", [ones], [None])
