"""Describe with `list`: the tensors of a session in pages, for a client that knows no ids."""

import pytest

from gradwire.v1 import commands_pb2 as c
from tests.server.harness import Id, Remote, refused


def listed(session: Remote, page_size: int = 0) -> list[c.DescribeResponse]:
    request = c.DescribeRequest(session_id=session.id, list=True, page_size=page_size)
    found = [session.stub.Describe(request)]
    while found[-1].more:
        request.after = found[-1].tensors[-1].id
        found.append(session.stub.Describe(request))
    return found


@pytest.mark.parametrize("page_size", [1, 2, 5, 0])
def test_pages_have_every_id_once_and_in_order(session: Remote, page_size: int) -> None:
    assert [len(page.tensors) for page in listed(session)] == [0]
    made = sorted([session.create([float(i)]) for i in range(4)] + [session.create([1.0], requires_grad=True)])
    found = listed(session, page_size)
    assert [spec.id for page in found for spec in page.tensors] == made
    assert {page.tensor_count for page in found} == {5}
    sizes = {1: [1, 1, 1, 1, 1], 2: [2, 2, 1], 5: [5], 0: [5]}
    assert [len(page.tensors) for page in found] == sizes[page_size]


def test_a_released_tensor_is_in_no_list(session: Remote) -> None:
    kept, dropped = session.create([1.0]), session.create([2.0])
    session.release(dropped)
    assert [spec.id for spec in listed(session)[0].tensors] == [kept]


def test_a_list_tells_which_tensors_have_gradients(session: Remote) -> None:
    x = session.create([1.0, 2.0], requires_grad=True)
    y = session.op("mul", Id(x), Id(x)).id
    loss = session.op("sum", Id(y)).id
    assert not any(spec.has_grad for spec in listed(session)[0].tensors)
    session.backward(loss)
    assert [spec.id for spec in listed(session)[0].tensors if spec.has_grad] == [x]


def test_a_list_of_named_tensors_is_refused(session: Remote) -> None:
    x = session.create([1.0])
    request = c.DescribeRequest(session_id=session.id, list=True, tensors=[x])
    assert refused(session.stub.Describe, request)[1] == "ARGUMENT_VALUE"
