"""What a session holds, without a session: the table of tensors, failed ids, a writer's dropped hooks."""

import numpy as np
import pytest

from gradwire_engine import Tensor
from gradwire_server.common.errors import Refusal
from gradwire_server.common.protocol import CLIENT_IDS
from gradwire_server.session.state.failures import FailedIds, Failure
from gradwire_server.session.state.tensor_table import TensorTable
from gradwire_server.session.writers import DroppedHooks


def made() -> Tensor:
    return Tensor(np.zeros(2))


def test_a_tensor_is_named_until_its_last_id_is_released() -> None:
    table, tensor = TensorTable(10), made()
    assert [table.bind(tensor_id, tensor) for tensor_id in (7, 3, 5)] == [7, 3, 5]
    assert (table.id_of(tensor), table.ids_of([tensor, made()])) == (7, [3, 5, 7])
    assert table.release(7)
    assert table.id_of(tensor) == 3
    assert table.release_all([3, 4]) == 1
    assert (table.id_of(tensor), table.aliases) == (5, {})
    assert table.release(5)
    assert not table.release(5)
    assert (table.id_of(tensor), table.names, table.store) == (0, {}, {})


def test_the_server_chooses_no_id_twice() -> None:
    table = TensorTable(10)
    first = table.bind(0, made())
    table.release(first)
    assert table.allot([4, 0], 3) == [4, CLIENT_IDS + 1, CLIENT_IDS + 2]
    assert (first, table.bind(0, made())) == (CLIENT_IDS, CLIENT_IDS + 3)


@pytest.mark.parametrize(
    ("ids", "reason"),
    [([1], "TENSOR_EXISTS"), ([CLIENT_IDS], "ARGUMENT_VALUE"), ([5, 5], "TENSOR_EXISTS"), ([5, 6, 7], "TENSOR_LIMIT")],
)
def test_new_ids_are_checked(ids: list[int], reason: str) -> None:
    table = TensorTable(3)
    table.bind(1, made())
    table.check_all_new([5, 6])
    with pytest.raises(Refusal) as refused:
        table.check_all_new(ids)
    assert refused.value.reason == reason


def test_ids_to_release_are_released_once() -> None:
    table = TensorTable(3)
    table.bind(1, made())
    table.deferred_releases = [1]
    table.apply_deferred_releases()
    table.bind(1, made())
    table.apply_deferred_releases()
    assert table.store.keys() == {1}


def test_an_id_that_is_bound_or_released_is_no_failed_id() -> None:
    table = TensorTable(10)
    table.failed_ids.add([1, 2, 3], Refusal("DTYPE", "no"), 4, 1, table.store)
    table.bind(1, made())
    assert not table.release(2)
    assert table.failed_ids.keys() == {3}


def test_a_failure_keeps_its_first_cause() -> None:
    failed = FailedIds()
    failed.add([1, 0, 2], Refusal("DTYPE", "first"), 4, 9, bound={2})
    failed.add([3], failed.refusal(1), 5, 8, bound=())
    assert dict(failed) == {tensor_id: Failure(4, 9, "DTYPE", "first") for tensor_id in (1, 3)}
    refusal = failed.refusal(3)
    assert (refusal.reason, refusal.root_seq) == ("DEPENDENCY_FAILED", 4)
    assert {name: refusal.metadata[name] for name in ("tensor", "root_reason", "root_writer")} == {
        "tensor": "3", "root_reason": "DTYPE", "root_writer": "9",
    }  # fmt: skip
    assert failed.refusal(2).reason == "TENSOR_NOT_FOUND"


def test_dropped_hooks_are_told_until_the_client_has_an_answer() -> None:
    dropped = DroppedHooks()
    dropped.numbers.extend([11, 12])
    assert dropped.report(5) == [11, 12]
    dropped.numbers.append(13)
    dropped.acknowledge(4)
    assert dropped.report(6) == [11, 12]
    dropped.acknowledge(5)
    assert dropped.report(7) == [13]
