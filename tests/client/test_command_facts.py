"""The facts about commands determine which commands a compiled function may contain."""

from typing import Any

import pytest

import gradwire
from gradwire._compile import recorder as recorders
from gradwire._compile.recorder import Recorder
from gradwire.v1 import commands_pb2, service_pb2
from gradwire.v1.command_facts import FACTS


def command(name: str) -> service_pb2.Command:
    """A command that sets what a step must set, and nothing else."""
    made = service_pb2.Command()
    request: Any = getattr(made, name)
    request.SetInParent()
    for field in FACTS[name].step_sets[:1]:
        if request.DESCRIPTOR.fields_by_name[field].message_type is None:
            setattr(request, field, getattr(request, field))
        else:
            getattr(request, field).SetInParent()
    return made


@pytest.mark.parametrize("name", list(FACTS))
def test_a_command_is_a_step_or_left_out_or_refused_or_an_obstacle(session: gradwire.Session, name: str) -> None:
    recorder, facts, given = Recorder(session), FACTS[name], command(name)
    if facts.answers_values or facts.runs_client_code:
        with pytest.raises(gradwire.GradwireRuntimeError, match="compiled function"):
            recorder.check(given)
        return
    recorder.check(given)
    result = service_pb2.Result()
    result.grad.grad.SetInParent()  # there is one
    recorder.add_command(given, result)
    assert [step.command.WhichOneof("command") for step in recorder.steps] == [name] * facts.is_step
    assert (recorder.obstacle is not None) is not (facts.is_step or facts.left_out_of_programs)
    assert recorder.differentiates() is (facts.is_step and facts.differentiates)


@pytest.mark.parametrize("name", [name for name, facts in FACTS.items() if facts.step_sets])
def test_a_request_that_no_step_can_have_is_refused_with_its_reason(session: gradwire.Session, name: str) -> None:
    given = service_pb2.Command()
    getattr(given, name).SetInParent()
    with pytest.raises(gradwire.GradwireRuntimeError, match=recorders._UNFIT[name]):
        Recorder(session).check(given)


def test_steps_name_the_tensors_that_they_make_as_the_facts_say() -> None:
    request = commands_pb2.GradientsRequest(outputs=[1], inputs=[2], grad_outputs=[3], results=[4])
    assert recorders._ids(request, FACTS["gradients"].makes) == [(False, 1), (False, 2), (False, 3), (True, 4)]


def test_a_saved_value_in_a_compiled_function_lets_it_run_as_it_is(session: gradwire.Session) -> None:
    @gradwire.compile
    def total(x: gradwire.Tensor) -> gradwire.Tensor:
        y = x * x
        return y + y.grad_fn._saved_self

    x = gradwire.tensor([2.0], requires_grad=True)
    with pytest.warns(UserWarning, match="saved_value"):
        assert [total(x).tolist() for _ in range(3)] == [[6.0]] * 3
