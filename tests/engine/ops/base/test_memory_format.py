"""Memory formats of arrays: which strides PyTorch takes for channels last, and copies in an order of dimensions."""

import itertools

import numpy as np
import pytest

from gradwire_engine.core.errors import EngineError
from gradwire_engine.ops.base.memory_format import in_order, order_of, order_of_format

torch = pytest.importorskip("torch", reason="PyTorch is the oracle of these tests")


@pytest.mark.parametrize("sizes", list(itertools.product((1, 2, 3), repeat=4)))
def test_strides_are_channels_last_where_pytorch_takes_them_so(sizes):
    last = torch.channels_last
    for order in itertools.permutations(range(4)):
        given = torch.zeros([sizes[dim] for dim in order]).permute(*np.argsort(order).tolist())
        made = torch.nn.functional.interpolate(given, scale_factor=2)  # its results keep the format
        wanted = torch.empty(made.shape, memory_format=last if order_of(given.numpy()) else torch.contiguous_format)
        assert made.stride() == wanted.stride()


def test_a_copy_has_the_strides_of_its_order_even_of_single_elements():
    array = np.arange(6.0).reshape(2, 3, 1, 1)
    made = in_order(np, array, (0, 2, 3, 1))
    assert [stride // 8 for stride in made.strides] == [3, 1, 3, 3]
    assert (made == array).all()


def test_a_format_of_another_rank_or_name_is_refused():
    assert order_of_format("contiguous_format", 2) is None
    with pytest.raises(EngineError, match="required rank 5 tensor to use channels_last_3d format"):
        order_of_format("channels_last_3d", 4)
    with pytest.raises(EngineError, match="Unsupported memory format"):
        order_of_format("rows_last", 4)
