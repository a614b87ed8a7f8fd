"""The meter counts commands by op and refusals by reason, and no label comes from a client."""

import json

from gradwire_server.common.errors import Refusal
from gradwire_server.session.meter import Meter
from tests.server.harness import Id, op


def _counts(meter: Meter) -> dict[tuple[str, str], int]:
    return {(command, name): count for command, name, count in meter.as_json()["commands"]}


def test_ops_count_by_their_name_and_other_commands_by_theirs() -> None:
    from gradwire_server.session.arguments import named_op

    named_op("neg")
    meter = Meter()
    for _ in range(2):
        meter.applied("op", op("neg", Id(1)), None)
    meter.applied("create", object(), None)
    assert _counts(meter) == {("op", "neg"): 2, ("create", ""): 1}


def test_an_op_that_does_not_exist_counts_without_a_name() -> None:
    meter = Meter()
    meter.applied("op", op("made up by a client", Id(1)), Refusal("OP_UNKNOWN", "there is none"))
    as_json = meter.as_json()
    assert as_json["commands"] == [["op", "", 1]]
    assert as_json["refusals"] == [["op", "", "OP_UNKNOWN", 1]]


def test_calls_of_prepared_ops_count_as_commands_of_the_op() -> None:
    meter = Meter()
    meter.called(["add", "mul", "add"])
    meter.refused("mul", Refusal("SHAPE", "no"))
    assert _counts(meter) == {("op", "add"): 2, ("op", "mul"): 1}
    assert meter.as_json()["refusals"] == [["op", "mul", "SHAPE", 1]]
    assert _counts(meter) == {("op", "add"): 2, ("op", "mul"): 1}


def test_what_is_told_is_json_and_stays_as_it_was() -> None:
    meter = Meter()
    meter.sizes.add(3)
    as_json = meter.as_json()
    meter.sizes.add(3)
    assert json.loads(json.dumps(as_json)) == as_json
    assert sum(as_json["sizes"]["counts"]) == 1
    assert as_json.keys() == {"commands", "refusals", "queued", "computed", "sizes"}
