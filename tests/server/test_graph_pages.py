"""The Graph command: the reverse graph as data, in pages."""

import pytest

from gradwire.v1 import commands_pb2 as c
from tests.server.harness import Id, Remote, refused


def pages(session: Remote, tensors: list[int], page_size: int) -> list[c.GraphResponse]:
    request = c.GraphRequest(session_id=session.id, tensors=tensors, page_size=page_size)
    found = [session.stub.Graph(request)]
    while found[-1].next_page_token:
        request.page_token = found[-1].next_page_token
        found.append(session.stub.Graph(request))
    return found


def test_nodes_edges_and_leaves(session: Remote) -> None:
    x = session.create([1.0, 2.0], requires_grad=True)
    constant = session.create([1.0, 2.0])
    product = session.op("mul", Id(x), Id(constant))
    y = session.op("add", Id(product.id), Id(x))
    (page,) = pages(session, [y.id, x], 0)
    nodes = {node.name: node for node in page.nodes}
    assert page.nodes[0].name == "AddBackward0"
    assert set(nodes) == {"AddBackward0", "MulBackward0", "AccumulateGrad"}
    add, mul, leaf = nodes["AddBackward0"], nodes["MulBackward0"], nodes["AccumulateGrad"]
    assert list(page.roots) == [add.id, 0]
    assert [edge.node for edge in add.edges] == [mul.id, leaf.id]
    assert [edge.node for edge in mul.edges] == [leaf.id, 0]
    assert leaf.leaf.id == x
    assert (mul.saved_bytes, mul.freed) == (8, False)
    session.backward(session.op("sum", Id(y.id)).id)
    (page,) = pages(session, [y.id], 0)
    assert {node.name: node.freed for node in page.nodes} == {
        "AddBackward0": False,
        "MulBackward0": True,
        "AccumulateGrad": False,
    }


def test_ids_of_nodes_last_as_long_as_they_live(session: Remote) -> None:
    x = session.create([1.0], requires_grad=True)
    y = session.op("exp", Id(x))
    first, second = pages(session, [y.id], 0)[0], pages(session, [y.id], 0)[0]
    assert [node.id for node in first.nodes] == [node.id for node in second.nodes]
    session.release(x)
    assert pages(session, [y.id], 0)[0].nodes[-1].leaf.id == 0


def chain(session: Remote, length: int) -> int:
    last = session.create([1.0], requires_grad=True)
    for _ in range(length):
        last = session.op("neg", Id(last)).id
    return last


@pytest.mark.parametrize("page_size", [1, 7, 1000])
def test_pages_make_up_the_whole(session: Remote, page_size: int) -> None:
    end = chain(session, 25)
    found = pages(session, [end], page_size)
    nodes = [node for page in found for node in page.nodes]
    assert len(found) == -(-26 // page_size)
    assert [node.name for node in nodes] == ["NegBackward0"] * 25 + ["AccumulateGrad"]
    assert [node.edges[0].node for node in nodes[:-1]] == [node.id for node in nodes[1:]]
    assert all(page.roots == found[0].roots for page in found)


def test_paging_keeps_nothing_alive(session: Remote) -> None:
    end = chain(session, 25)
    request = c.GraphRequest(session_id=session.id, tensors=[end], page_size=10)
    request.page_token = session.stub.Graph(request).next_page_token
    session.release(*range(1, 100), *range(1 << 52, (1 << 52) + 100))
    assert session.describe().bytes == 0
    assert not session.stub.Graph(request).nodes


@pytest.mark.parametrize("place", ["", "-1", "²", "9" * 5000, "1.1", "99"])
def test_a_forged_page_token_is_refused(session: Remote, place: str) -> None:
    x = session.create([1.0], requires_grad=True)
    last = session.op("mul", Id(session.op("mul", Id(x), Id(x)).id), 2.0).id
    request = c.GraphRequest(session_id=session.id, tensors=[last], page_size=1)
    walk = session.stub.Graph(request).next_page_token.partition(".")[0]
    request.page_token = f"{walk}.{place}"
    assert refused(session.stub.Graph, request)[:2] == ("INVALID_ARGUMENT", "ARGUMENT_VALUE")


def test_an_old_page_token_is_refused(session: Remote) -> None:
    end = chain(session, 25)
    request = c.GraphRequest(session_id=session.id, tensors=[end], page_size=10)
    tokens = [session.stub.Graph(request).next_page_token for _ in range(6)]
    request.page_token = tokens[0]
    assert refused(session.stub.Graph, request)[1] == "ARGUMENT_VALUE"
    request.page_token = tokens[-1]
    assert len(session.stub.Graph(request).nodes) == 10


def test_leaves_tell_whether_they_have_a_gradient(session: Remote) -> None:
    x = session.create([1.0], requires_grad=True)
    y = session.op("exp", Id(x))
    assert not pages(session, [y.id], 0)[0].nodes[-1].leaf.has_grad
    session.backward(y.id, retain_graph=True)
    assert pages(session, [y.id], 0)[0].nodes[-1].leaf.has_grad


def test_a_version_leaves_room_for_changes(session: Remote) -> None:
    x = session.create([1.0, 2.0])
    for version in (2**62, 2**64 - 1):
        request = c.SetCountersRequest(session_id=session.id, tensor=x, version=version)
        assert refused(session.stub.SetCounters, request)[1] == "ARGUMENT_VALUE"
    request = c.SetCountersRequest(session_id=session.id, tensor=x, version=2**62 - 1)
    assert session.stub.SetCounters(request).version == 2**62 - 1
    session.op("add_", Id(x), Id(x))
    described = session.stub.Describe(c.DescribeRequest(session_id=session.id, tensors=[x]))
    assert described.tensors[0].version == 2**62
