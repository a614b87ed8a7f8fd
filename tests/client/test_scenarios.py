"""The scenarios of autograd's rules over the wire: each runs with torch and with the client, and both agree.

tests/engine/test_scenarios.py runs the same scenarios on the engine in process.
"""

import pytest

from tests.client.oracle import agree, torch
from tests.scenarios import SCENARIOS, Scenario

pytestmark = [pytest.mark.usefixtures("deferring"), pytest.mark.filterwarnings("ignore")]


@pytest.mark.parametrize("scenario", [pytest.param(each, id=each.name) for each in SCENARIOS])
def test_gradwire_does_what_pytorch_does(scenario: Scenario) -> None:
    if scenario.refusal is None:
        agree(scenario)
        return
    import gradwire

    error, phrase = scenario.refusal
    for module in (torch, gradwire, gradwire, gradwire):
        with pytest.raises(error, match=phrase):
            scenario(module)
