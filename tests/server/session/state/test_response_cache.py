"""Responses are kept for repeated requests, within caps in bytes and number, and never for another request."""

import pytest

from gradwire.v1 import service_pb2
from gradwire_server.common.errors import Refusal
from gradwire_server.session.state.response_cache import BatchResponses, CachedBytes, ResponseCache


def test_a_repeated_request_finds_its_response_and_a_new_one_nothing() -> None:
    cache = ResponseCache(1000, 10)
    cache.keep("id", "Create", b"request", b"response")
    assert cache.find("id", "Create", b"request") == b"response"
    assert cache.find("other", "Create", b"request") is None


@pytest.mark.parametrize(
    ("method", "request_", "says"), [("Create", b"else", "another Create"), ("Op", b"request", "a Create")]
)
def test_an_id_that_another_request_used_is_refused(method: str, request_: bytes, says: str) -> None:
    cache = ResponseCache(1000, 10)
    cache.keep("id" * 100, "Create", b"request", b"response")
    with pytest.raises(Refusal, match=f"was used for {says} already") as refusal:
        cache.find("id" * 100, method, request_)
    assert (refusal.value.reason, refusal.value.metadata["argument"]) == ("ARGUMENT_VALUE", "request_id")
    assert len(str(refusal.value)) < 200


def test_the_oldest_responses_are_forgotten_over_the_cap_of_bytes_or_of_number() -> None:
    cache = ResponseCache(30, 3)
    for number in range(5):
        cache.keep(f"{number}", "Op", b"", b"x" * 8)
    assert list(cache.held) == ["2", "3", "4"]
    cache.keep("5", "Op", b"", b"x" * 20)
    assert list(cache.held) == ["4", "5"]
    assert cache.bytes == 30
    cache.keep("6", "Op", b"", b"x" * 40)
    assert (list(cache.held), cache.bytes) == ([], 0)


def test_a_cleared_memory_holds_nothing() -> None:
    cache = ResponseCache(1000, 10)
    cache.keep("id", "Op", b"", b"x")
    cache.clear()
    assert (cache.bytes, cache.find("id", "Op", b"")) == (0, None)


def _response(*seqs: int) -> bytes:
    return service_pb2.RunResponse(results=[service_pb2.Result(seq=seq) for seq in seqs]).SerializeToString()


def _seqs(responses: BatchResponses, first: int, last: int) -> list[int]:
    return [result.seq for result in responses.results(first, last)]


def test_results_are_found_by_seq_across_batches() -> None:
    responses = BatchResponses(1000, 10)
    responses.keep(3, _response(1, 2, 3))
    responses.keep(4, _response(4))
    assert _seqs(responses, 2, 4) == [2, 3, 4]
    assert _seqs(responses, 2, 2) == [2]
    assert _seqs(responses, 5, 9) == []


def test_acknowledged_results_are_forgotten_and_asking_for_them_is_refused() -> None:
    responses = BatchResponses(1000, 10)
    responses.keep(2, _response(1, 2))
    responses.keep(4, _response(3, 4))
    responses.acknowledge(3)
    assert (responses.start, _seqs(responses, 3, 4)) == (3, [3, 4])
    with pytest.raises(Refusal, match="from 2 on were applied, but answers before 3") as refusal:
        responses.results(2, 4)
    assert refusal.value.reason == "RESULT_FORGOTTEN"
    assert refusal.value.metadata == {"first_seq": "2", "oldest_seq": "3"}


def test_a_writer_keeps_only_so_many_batches() -> None:
    responses = BatchResponses(1000, 2)
    for seq in (1, 2, 3):
        responses.keep(seq, _response(seq))
    assert (responses.start, _seqs(responses, 2, 3)) == (2, [2, 3])


def test_the_cap_of_bytes_counts_all_writers() -> None:
    size, all_writers = len(_response(1)), CachedBytes()
    one, other = (BatchResponses(2 * size, 10, all_writers) for _ in range(2))
    one.keep(1, _response(1))
    other.keep(1, _response(1))
    assert all_writers.bytes == 2 * size
    other.keep(2, _response(2))
    assert (all_writers.bytes, len(one.held), len(other.held)) == (2 * size, 1, 1)
    one.acknowledge(1)
    assert all_writers.bytes == size
