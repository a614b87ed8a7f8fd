"""Parts of a cluster by themselves, without Ray: whether a peer answers, and the Director's places."""

import inspect
import socket
from pathlib import Path

from gradwire_server.cluster.director import Director
from gradwire_server.cluster.head_probe import why_no_head
from gradwire_server.cluster.node import Node, start_node
from gradwire_server.common.peer import answers
from gradwire_server.session.program_files import DESCRIPTION, VERSION, schema_hash
from gradwire_server.session.rules import MAX_TERMS, Rules
from tests.server.harness import Running


def test_a_server_answers_and_a_listener_that_says_nothing_does_not(server: Running) -> None:
    assert answers(server.address, tls=False)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        assert not answers(f"127.0.0.1:{silent.getsockname()[1]}", tls=False, seconds=0.2)
    assert not answers("127.0.0.1:1", tls=False) and not answers("no address", tls=False)


def test_what_is_no_head_of_ray_is_told_by_what_it_is(server: Running, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret")
    assert "cannot be reached" in why_no_head("127.0.0.1:1", token)
    assert "gradwire" in why_no_head(server.address, token)


def test_the_director_places_a_session_at_the_node_with_most_room() -> None:
    director = Director()
    assert director.place("a:1") == ""
    director.report("a:1", {"sessions": 5, "workers": 1})
    director.report("b:2", {"sessions": 0, "workers": 1})
    assert director.place("a:1") == "b:2"
    assert director.nodes()["a:1"]["sessions"] == 5
    director.remove("b:2")
    assert director.place("a:1") == "a:1"
    assert list(inspect.signature(Node).parameters) == list(inspect.signature(start_node).parameters)


def test_a_program_without_rules_has_its_numbers_given() -> None:
    rules = Rules([], 2, ())
    assert rules.evaluate((), (1.0, 2.0)) == ([1.0, 2.0], {})
    assert (MAX_TERMS, VERSION, DESCRIPTION) == (256, 1, "gradwire.program") and len(schema_hash()) >= 32
