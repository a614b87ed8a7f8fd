"""Refusals change nothing: `python -m tests.hostile.refusal_effects` draws commands and compares states.

A session receives random messages of messages.py. Its state is compared before and after each refused message:
tensors, values, versions, gradients, graph, saved values, hooks, failed ids. Any difference is a fault. Two
exceptions: a backward that fails in its middle may free its nodes' saved values (commands.proto), and an op made of
several may skip numbers of nodes, which the log records.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections import Counter

from gradwire_server.common.errors import Refusal
from gradwire_server.common.shared_counters import SharedCounters
from gradwire_server.session.batch import OutOfOrder
from gradwire_server.session.commands import BY_METHOD
from gradwire_server.session.session import Session
from gradwire_server.storage.instructions import StorageInstruction
from gradwire_server.worker.runtime import Runtime
from tests.hostile.dispatch import LIMITS, Wrong
from tests.hostile.log_replay import describe_session
from tests.hostile.messages import Messages

#: What a differentiation that fails on its way may be refused for when it has passed some nodes.
_MIDWAY = {"VERSION_CONFLICT", "MEMORY_LIMIT", "CANCELLED", "RUNTIME", "SHAPE", "DTYPE"}
_RENEWED = 150  # messages of a session


class Bench:
    """A host with one session."""

    def __init__(self) -> None:
        self.runtime = Runtime(LIMITS.resolved(), SharedCounters(1))
        self.number = self.ticket = 0

    def do(self, method: str, raw: bytes) -> str:
        """Carry a call out; the reason of its refusal, or ""."""
        self.ticket += 1
        call = self.runtime.make_call(method, self.number, raw, self.ticket, None)
        try:
            for _ in self.runtime.execute(call):
                pass
        except OutOfOrder:
            return "SEQUENCE_GAP"
        except Refusal as refusal:
            return refusal.reason
        finally:
            self.runtime.apply_deferred_releases(call.session)
        return ""

    def renew(self, messages: Messages) -> None:
        """Another session, with some tensors."""
        if self.number:
            self.do("Drop", b"")
        self.number += 1
        self.do("Open", StorageInstruction().pack())
        for request in messages.first():
            self.do("Create", request.SerializeToString())


def described(session: Session) -> list[str]:
    """The state of a session, without the number that its next node gets."""
    return [each for each in describe_session(session) if not each.startswith("next_node_seq ")]


def draw(seed: int, count: int) -> Counter[str]:
    """So many messages; how many were refused, by method. Raises Wrong."""
    bench, messages = Bench(), Messages(seed)
    found: Counter[str] = Counter()
    while sum(found.values()) < count:
        if sum(found.values()) % _RENEWED == 0:
            bench.renew(messages)
        method, raw = messages.draw()
        if method not in BY_METHOD:
            continue
        session = bench.runtime.sessions[bench.number]
        if session.hooks.suspended:  # which is in no description
            bench.renew(messages)
            continue
        before = described(session)
        reason = bench.do(method, raw)
        found[method if reason else ""] += 1
        if not reason or session.hooks.suspended or (BY_METHOD[method].facts.may_suspend and reason in _MIDWAY):
            continue
        after = described(session)
        if after != before:
            changed = [pair for pair in zip(before, after, strict=False) if pair[0] != pair[1]][:3]
            raise Wrong(f"seed {seed}: {method}, refused for {reason}, changed {changed}: {raw.hex()}")
    return found


def main() -> None:
    """The long form."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--messages", type=int, default=400)
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    total: Counter[str] = Counter()
    for seed in range(options.first, options.first + options.seeds):
        total += draw(seed, options.messages)
    print(f"{total.total()} messages, of which refused: {dict(total.most_common())}")
    sys.exit(0)


if __name__ == "__main__":
    main()
