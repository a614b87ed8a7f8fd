"""The activity of a session as Describe answers it: op times, refusals, and its programs."""

from gradwire.v1 import commands_pb2
from gradwire_server.common.errors import reason_number
from gradwire_server.session.programs import Program
from gradwire_server.session.session import Session

MAX_OPS = 12  # of a program, so that people recognize it


def report_activity(session: Session, answer: commands_pb2.SessionActivity) -> None:
    """Fill in the session's activity, and keep its watch alive."""
    for kind, name, seconds, calls in session.activity.watch().items():
        answer.op_times.add(kind=kind, name=name, seconds=seconds, calls=calls)
    activity = session.activity
    answer.refused = activity.refused
    for each in activity.refusals:
        answer.refusals.add(
            at_unix_ms=each.at_unix_ms,
            command=each.command,
            op=each.op,
            reason=reason_number(each.reason),
            message=each.message,
        )
    for digest, program in session.programs.items():
        _report_program(digest, program, answer.programs.add())


def _report_program(digest: bytes, program: Program, answer: commands_pb2.ProgramStatistics) -> None:
    answer.hash = digest
    answer.ops.extend(_first_ops(program))
    answer.steps = len(program.steps)
    answer.planned_runs = program.planned_runs
    answer.stepwise_runs = program.stepwise_runs
    answer.stepwise_because = program.stepwise_because


def _first_ops(program: Program) -> list[str]:
    names = dict.fromkeys(step.which if step.call is None else step.call.name for step in program.steps)
    return list(names)[:MAX_OPS]
