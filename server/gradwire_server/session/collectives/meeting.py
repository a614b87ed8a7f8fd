"""Meeting: a rank waits for answers of the front, which tell that all ranks have arrived."""

from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import Any

from gradwire_server.common.errors import Refusal
from gradwire_server.session.state.group_table import GroupTable, Membership

Waiting = Generator[None, None, dict[str, Any]]


def answer_of(groups: GroupTable, future: Future[Any]) -> Waiting:
    """Wait for an answer of the front, while other sessions compute. Raises Refusal: also if the command is stopped."""
    token = groups.cancel_token
    while not future.done():
        if token.closed or token.stopping():
            raise token.refusal()
        token.wait_for(future)
        yield
    answered: dict[str, Any] = future.result()
    return answered


def meet(
    groups: GroupTable,
    member: Membership,
    about: str,
    timeout: int,
    offer: Any = None,
    meanwhile: Callable[[], None] | None = None,
) -> Waiting:
    """Wait until all ranks have arrived; the offers of all of them. Raises Refusal, in step with the other ranks."""
    channel = groups.require_channel()
    offered = {} if offer is None else {"offer": offer}
    future = channel.ask(
        groups.session, "arrive", group=member.number, place=member.begun, about=about, timeout=timeout, **offered
    )  # fmt: skip
    member.begun += 1
    if meanwhile is not None:
        meanwhile()
    try:
        return (yield from answer_of(groups, future))
    except Refusal as refusal:
        if not future.done():  # this rank's command was stopped
            why = f"the command of rank {member.rank} was stopped: {refusal.message}"
            member.broken = member.broken or Refusal("GROUP_BROKEN", why, rank=member.rank)
            channel.tell(groups.session, "abandon", group=member.number, why=why)
        refusal.in_step = True
        raise
    except GeneratorExit:
        channel.tell(groups.session, "abandon", group=member.number, why=f"the session of rank {member.rank} ended")
        raise
