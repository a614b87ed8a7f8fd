"""Random failures in a real network: servers in network namespaces that share a state directory, and a training.

Needs root, `ip` and the right to make namespaces. GRADWIRE_PARTITION_SEEDS sets how many random sequences are tried,
and GRADWIRE_PARTITION_FAILURES how many failures each has: from six on, each sequence has every kind. The longest step
after each kind of failure is printed at the end (pytest -s).
"""

import itertools
import os
import random
import signal
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import gradwire
from tests.client.sharing import Node, attach_elsewhere, train
from tests.namespaces import Network, may_make

FAILURES = int(os.environ.get("GRADWIRE_PARTITION_FAILURES", "3"))
AT = range(8, 8 + 11 * FAILURES, 11)  # steps at which something happens
STEPS = AT[-1] + 10
SEEDS = range(int(os.environ.get("GRADWIRE_PARTITION_SEEDS", "1")))
KINDS = ("worker", "front", "node", "cut", "cut from nodes", "frozen")
ENDED = ("front", "node")  # kinds after which the server must be started again
HEALED_AFTER = 6  # steps


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    if not may_make():
        pytest.skip("network namespaces need root and `ip`")
    made = Network()
    try:
        made.make()
    except subprocess.CalledProcessError as error:
        made.remove()
        pytest.skip(f"this machine makes no network namespaces: {error.stderr.strip()}")
    yield made
    made.remove()


@pytest.fixture(scope="module")
def undisturbed(server_address: str) -> str:
    return train(server_address, STEPS)


@pytest.fixture
def nodes(network: Network, tmp_path: Path) -> Iterator[list[Node]]:
    started: list[Node] = []
    try:
        for index, host in enumerate(network.hosts):
            flags = ("--durability=log", "--insecure-bind")
            started.append(Node(tmp_path, *flags, host=host, within=network.within(index)))
        yield started
    finally:
        for index, node in enumerate(started):
            network.heal(index)
            node.kill()


class Failures:
    """Harms the node that has the session at some steps of a training, and heals it later. Times the steps."""

    def __init__(self, network: Network, nodes: list[Node], seed: int) -> None:
        self._network, self._nodes = network, nodes
        self._random = random.Random(seed)
        # As many different ones as there are; with more seeds also other orders and nodes.
        kinds = self._random.sample(KINDS, min(len(AT), len(KINDS)))
        kinds += [self._random.choice(KINDS) for _ in AT[len(KINDS) :]]
        self._random.shuffle(kinds)
        self.kinds = kinds
        self.harmed: list[int] = []
        self.longest: dict[str, float] = defaultdict(float)  # step after a failure of this kind, in seconds
        self._began = 0.0

    def step_done(self, step: int) -> None:
        """Follow the training. What happens between two steps is not timed."""
        if self.harmed:
            kind = self.kinds[len(self.harmed) - 1]
            self.longest[kind] = max(self.longest[kind], time.monotonic() - self._began)
        if step in AT:
            self._harm(self.kinds[AT.index(step)])
        elif step - HEALED_AFTER in AT:
            self._heal(self.kinds[AT.index(step - HEALED_AFTER)])
        self._began = time.monotonic()

    def _harm(self, kind: str) -> None:
        session = gradwire.current_session()
        endpoints = [node.endpoint for node in self._nodes]
        here = endpoints.index(session.address)
        self.harmed.append(here)
        node = self._nodes[here]
        if kind == "worker":
            for pid in node.workers():
                os.kill(pid, signal.SIGKILL)
        elif kind == "front":
            node.process.kill()
        elif kind == "node":
            node.kill()
        elif kind == "frozen":
            node.signal(signal.SIGSTOP)
        elif kind == "cut":
            self._network.cut(here)
        else:
            self._network.cut_from_nodes(here)
            other = (here + self._random.choice((1, 2))) % len(endpoints)
            attach_elsewhere(endpoints[other], session.session_id)

    def _heal(self, kind: str) -> None:
        node = self._nodes[self.harmed[-1]]
        if kind in ENDED:
            node.kill()
            node.start()
        elif kind == "frozen":
            node.signal(signal.SIGCONT)
        else:
            self._network.heal(self.harmed[-1])


@pytest.fixture(scope="module")
def longest() -> Iterator[dict[str, list[float]]]:
    """The longest step after each kind of failure, for each sequence; printed at the end."""
    found: dict[str, list[float]] = defaultdict(list)
    yield found
    print("\nlongest step of each sequence, in seconds, by kind of failure")
    for kind in filter(found.__contains__, KINDS):
        print(f"  {kind}: {', '.join(f'{each:.1f}' for each in found[kind])}; most {max(found[kind]):.2f}")
    print(f"load {os.getloadavg()[0]:.0f}")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", SEEDS)
def test_training_is_the_same_through_random_failures(
    undisturbed: str, network: Network, nodes: list[Node], longest: dict[str, list[float]], seed: int
) -> None:
    failures = Failures(network, nodes, seed)
    found = train(",".join(node.endpoint for node in nodes), STEPS, failures.step_done)
    print(f"seed {seed}: {', '.join(failures.kinds)}: {'same' if found == undisturbed else 'OTHER'} bits")
    for kind, seconds in failures.longest.items():
        longest[kind].append(seconds)
    assert found == undisturbed
    # The session left each node that its client could not reach. A worker is started again at its node, and to one that
    # was cut from the others only, the session may come back.
    left = list(zip(failures.kinds, itertools.pairwise(failures.harmed), strict=False))
    stays = ("worker", "cut from nodes")
    assert all(one != other for kind, (one, other) in left if kind not in stays), left
