"""gradwire.timings: the server's times for waiting, computing and serializing batches."""

import pytest

import gradwire


def test_a_block_sums_what_its_batches_took(session: gradwire.Session) -> None:
    x = gradwire.ones(300, 300, requires_grad=True)
    with gradwire.timings() as spent:
        for _ in range(50):
            x = x * 1.0001
        x.sum().backward()
    assert spent.batches >= 1
    assert spent.compute > 0
    assert spent.queue >= 0 and spent.serialize >= 0
    assert "compute=" in repr(spent)
    before = (spent.batches, spent.compute)
    (x + 1).tolist()
    assert (spent.batches, spent.compute) == before


def test_blocks_nest(session: gradwire.Session) -> None:
    x = gradwire.ones(3)
    with gradwire.timings() as outer:
        (x * 2).tolist()
        with gradwire.timings() as inner:
            (x * 3).tolist()
    assert 1 <= inner.batches < outer.batches
    assert 0 < inner.compute < outer.compute


def test_a_block_that_is_left_by_an_error_counts_no_more(session: gradwire.Session) -> None:
    x = gradwire.ones(3)
    with pytest.raises(ZeroDivisionError), gradwire.timings() as spent:
        raise ZeroDivisionError
    (x * 2).tolist()
    assert spent.batches == 0
    assert session.timed == ()
