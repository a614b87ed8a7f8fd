"""Node: the actor that runs one server process, starts it again when it ends, and connects it to the Director.

The server is an ordinary `gradwire serve`. It asks on a Unix socket where a new session is to be opened
(registry/placement.py). The server ends with this actor: the kernel sends it SIGTERM. Ray starts the actor again.
"""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from gradwire_server.cluster.director import director
from gradwire_server.cluster.placement import Load
from gradwire_server.cluster.ray_process import NAMESPACE, resource
from gradwire_server.common.allocator import give_back

PREFIX = "node "  # of an actor's name; the endpoint follows
_FIRST_WAIT, _LONGEST_WAIT = 0.1, 2.0  # seconds before a server that ended is started again
_TRIED_STARTS, _LOOK_SECONDS = 2, 0.1  # of a server that never listened, until that is told
_STEADY_SECONDS = 10.0  # a server that ran so long is started again at once
_DIRECTOR_SECONDS = 0.8
_AWAY_SECONDS = 1.0  # without calls, after one that the Director did not answer
_LEARNING_SECONDS = 0.1  # before a Director is asked again to which not all nodes have reported
_LOST_SECONDS = 15.0  # for Ray to notice that a machine was lost, or to forget an actor
_FIRST_WATCH_SECONDS, _NEXT_WATCH_SECONDS = 180.0, 10.0  # without a watch, until the node ends and Ray with it
_WATCH_GRACE = 30.0  # to store its sessions then
_LAST_LINES = 20  # of a server's log, for the reason why it does not start
_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG


class NodeExists(Exception):
    """The cluster has a node with this endpoint."""

    def __init__(self, endpoint: str) -> None:
        super().__init__(f"the cluster has a node {endpoint} already")


class Node:
    """A Ray actor; `start_node` makes it. Its methods may be called from several threads."""

    def __init__(
        self, endpoint: str, arguments: Sequence[str], environment: Mapping[str, str | None], folder: str,
        control: str = "",
    ) -> None:  # fmt: skip
        """Start the server. `environment` has variables that Ray changes, as they were; None for unset ones.

        `folder` is removed with Ray's end on this machine. So nothing is left of an actor that was killed. At the path
        `control`, if given, a process of this machine may watch and end the node (watch.py).
        """
        self.endpoint = endpoint
        self._arguments = tuple(arguments)
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        for name, value in environment.items():
            self._environment.pop(name, None)
            if value is not None:
                self._environment[name] = value
        self._folder = Path(tempfile.mkdtemp(prefix="node-", dir=folder))
        self._listening = threading.Event()
        self._ending = threading.Event()
        self._draining = False
        self._starts = 0
        self._ended_early = 0  # servers that ended before they listened
        self._last_lines: collections.deque[str] = collections.deque(maxlen=_LAST_LINES)
        self._process: subprocess.Popen[str] | None = None
        self._director = director()
        self._director_away_until = 0.0
        self._reporting = threading.Lock()
        self._removed = False
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(str(self._folder / "placement"))
        self._socket.listen()
        self._control = control
        self._ray_folder = folder
        self._watching = threading.Lock()
        self._watches = 0  # connections of watches
        self._unwatched_until = time.monotonic() + _FIRST_WATCH_SECONDS
        controlling = [self._serve_control, self._end_without_watch] if control else []
        for target in (self._run_server, self._serve_placement, *controlling):
            threading.Thread(target=target, daemon=True).start()

    # For the command line.

    def wait_until_started(self, seconds: float) -> str:
        """Wait until the server listens; "" then, else why it does not. It may end once, and be started again."""
        ends = time.monotonic() + seconds
        while time.monotonic() < ends and self._ended_early < _TRIED_STARTS:
            if self._listening.wait(_LOOK_SECONDS):
                return ""
        return "\n".join(self._last_lines) or f"the server does not listen after {seconds:g} seconds"

    def status(self) -> dict[str, Any]:
        """The server's process id, and how often it was started."""
        process = self._process
        return {"pid": None if process is None else process.pid, "starts": self._starts, "actor": os.getpid()}

    def stop(self, grace: float) -> bool:
        """Get no more sessions, store those that are here, and end the server; whether it ended within the grace."""
        self._draining = True
        self._ending.set()
        process, ended = self._process, True
        if process is not None and process.poll() is None:
            process.terminate()
            try:
                process.wait(grace)
            except subprocess.TimeoutExpired:
                process.kill()
                ended = False
        with self._reporting:
            self._removed = True
            self._director.remove.remote(self.endpoint)
        shutil.rmtree(self._folder, ignore_errors=True)
        if self._control:
            Path(self._control).unlink(missing_ok=True)  # says that the node ends, and is not to be started again
        return ended

    def end_cluster(self) -> None:
        """Write to the state directory that the cluster ends, for machines that are cut off now."""
        from gradwire_server.cluster.head_record import FileRecord

        flag = "--state-dir="
        folder = next(each for each in self._arguments if each.startswith(flag)).removeprefix(flag)
        FileRecord(Path(folder)).swap("")

    # The server.

    def _run_server(self) -> None:
        """Run the server until `stop`. This thread lives as long as the actor, which PR_SET_PDEATHSIG needs."""
        wait = _FIRST_WAIT
        while not self._ending.is_set():
            began = time.monotonic()
            process = self._process = subprocess.Popen(
                [sys.executable, "-m", "gradwire_server", *self._arguments, f"--placement={self._folder}/placement"],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True,
                env=self._environment, preexec_fn=_end_with_parent,
            )  # fmt: skip
            self._starts += 1
            assert process.stdout is not None
            for line in process.stdout:
                self._last_lines.append(line.rstrip())
                print(line, end="", flush=True)  # Ray keeps an actor's output in a file
                if "listening" in line:
                    self._listening.set()
                    give_back(0)  # what Ray and its imports have freed
            process.wait()
            self._ended_early += not self._listening.is_set()
            self._listening.clear()
            wait = _FIRST_WAIT if time.monotonic() - began > _STEADY_SECONDS else min(2 * wait, _LONGEST_WAIT)
            self._ending.wait(wait)

    # Control by this machine's watch.

    def _serve_control(self) -> None:
        """Let a process of this machine see by a connection that this actor lives, and end the node by a line."""
        made = f"{self._control}.{os.getpid()}"
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
            listening.bind(made)
            listening.listen()
            os.replace(made, self._control)  # of an actor that was killed; without one, the watch takes it as drained
            while not self._ending.is_set():
                connection, _ = listening.accept()
                threading.Thread(target=self._follow_control, args=(connection,), daemon=True).start()

    def _end_without_watch(self) -> None:
        """End the node and Ray of this machine when its watch was killed: nothing else would end them."""
        import ray

        while self._watches or time.monotonic() < self._unwatched_until:
            if self._ending.wait(1.0):
                return
        print("the watch of this node has ended, and with it the node and Ray on this machine", flush=True)
        self.stop(_WATCH_GRACE)
        command = [sys.executable, "-m", "gradwire_server.cluster.ray_session", str(os.getsid(0)), self._ray_folder]
        subprocess.run(command, env=self._environment, check=False)  # it leaves a process of its own
        ray.kill(ray.get_runtime_context().current_actor)  # Ray would start it again, at the next machine of its name

    def _follow_control(self, connection: socket.socket) -> None:
        with self._watching:
            self._watches += 1
        try:
            self._obey(connection)
        finally:
            with self._watching:
                self._unwatched_until = time.monotonic() + _NEXT_WATCH_SECONDS
                self._watches -= 1

    def _obey(self, connection: socket.socket) -> None:
        """Follow what a watch says, until its connection ends."""
        import ray

        with connection, connection.makefile("r", encoding="utf-8") as lines, contextlib.suppress(OSError):
            for line in lines:
                ended = self.stop(json.loads(line)["stop"])
                connection.sendall(json.dumps({"ended": ended}).encode() + b"\n")
                ray.kill(ray.get_runtime_context().current_actor)  # Ray would start an actor that just ends again

    # Placement.

    def _serve_placement(self) -> None:
        while not self._ending.is_set():
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._answer_server, args=(connection,), daemon=True).start()

    def _answer_server(self, connection: socket.socket) -> None:
        """Pass the server's reports on, and answer its questions, until it closes the connection."""
        writing = threading.Lock()
        reported: concurrent.futures.Future[dict[str, list[Any]]] | None = None

        def answer(message: dict[str, Any]) -> None:
            with writing, contextlib.suppress(OSError):  # the reading side ends the connection
                connection.sendall(json.dumps(message).encode() + b"\n")

        def tell_elsewhere(told: concurrent.futures.Future[dict[str, list[Any]]]) -> None:
            if not told.cancelled() and told.exception() is None:  # without the Director, the last sums hold
                answer({"elsewhere": told.result()})

        with connection, connection.makefile("r", encoding="utf-8") as lines, contextlib.suppress(OSError):
            for line in lines:
                message = json.loads(line)
                if "load" in message:
                    if reported is not None and not reported.done():
                        continue  # the Director is busy or away: reports must not pile up
                    load = Load.of(message["load"])
                    load = replace(load, draining=load.draining or self._draining)
                    with self._reporting:
                        if self._removed:
                            continue  # the server's last lines, read after its end, must not list the node again
                        told = self._director.report.remote(self.endpoint, asdict(load), message.get("usage"))
                    reported = told.future()
                    if "usage" in message:
                        reported.add_done_callback(tell_elsewhere)
                elif "nodes" in message:
                    answer({"nodes": message["nodes"], "found": self._told(self._director.nodes.remote, {})})
                elif message.get("gang"):
                    endpoint, refused = self._place_in_gang(message)
                    answer({"place": message["place"], "endpoint": endpoint, "refused": refused})
                else:
                    place = partial(self._director.place.remote, self.endpoint, message.get("device_type", ""))
                    answer({"place": message["place"], "endpoint": self._told(place, "")})  # "" is here

    def _place_in_gang(self, message: Mapping[str, Any]) -> tuple[str, str]:
        """The node for one of a gang's sessions, and why it is refused. "" and "" while the Director cannot tell."""
        asked = (self.endpoint, message.get("device_type", ""), message["gang"], message["size"])
        ends = time.monotonic() + _DIRECTOR_SECONDS
        while (left := ends - time.monotonic()) > 0:
            endpoint, refused = self._told(partial(self._director.place_in_gang.remote, *asked), ("", ""), left)
            if endpoint is not None:
                return endpoint, refused
            time.sleep(min(left, _LEARNING_SECONDS))  # the Director is new, and learns what the nodes have
        return "", ""

    def _told(self, ask: Callable[[], Any], otherwise: Any, seconds: float = _DIRECTOR_SECONDS) -> Any:
        """The Director's answer; `otherwise` while it does not answer.

        After a call without an answer, none is made for a while. Else the server's questions would pile up.
        """
        import ray

        if time.monotonic() < self._director_away_until:
            return otherwise
        try:
            return ray.get(ask(), timeout=seconds)
        except ray.exceptions.RayError as error:
            print(f"the Director does not answer: {error!r}", flush=True)
            self._director_away_until = time.monotonic() + _AWAY_SECONDS
            return otherwise


def _end_with_parent() -> None:
    """In the server, before it begins: ask the kernel for SIGTERM when the actor has ended."""
    ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGTERM)


def start_node(
    endpoint: str, arguments: Sequence[str], environment: Mapping[str, str | None], folder: str, control: str = ""
) -> Any:
    """Make the actor of a node, on the machine whose Ray was started for it. Needs a connection to Ray.

    Raises NodeExists if the cluster has such a node.
    """
    import ray

    actor = ray.remote(Node).options(
        name=PREFIX + endpoint, namespace=NAMESPACE, lifetime="detached", num_cpus=0, max_restarts=-1,
        max_concurrency=4, resources={resource(endpoint): 1},
    )  # fmt: skip
    try:
        return actor.remote(endpoint, list(arguments), dict(environment), folder, control)
    except ValueError:
        raise NodeExists(endpoint) from None


def remove_lost(endpoint: str) -> None:
    """End the actor of a node that was lost with its machine, which now joins again. Needs a connection to Ray.

    Ray would start it with its former arguments. Raises NodeExists if another machine runs such a node.
    """
    import ray

    def elsewhere() -> bool:
        # This machine is one of them.
        return sum(resource(endpoint) in each["Resources"] for each in ray.nodes() if each["Alive"]) > 1

    def known() -> bool:
        return any(each["name"] == PREFIX + endpoint for each in ray.util.list_named_actors(all_namespaces=True))

    def ended() -> bool:
        with contextlib.suppress(ValueError):  # it has ended since
            if known():
                # Again each time: Ray starts the actor meanwhile, and does not end one that it has not started yet.
                ray.kill(ray.get_actor(PREFIX + endpoint, namespace=NAMESPACE))
                return False
        return True

    if known() and not (_in_time(lambda: not elsewhere()) and _in_time(ended)):
        raise NodeExists(endpoint)


def _in_time(condition: Callable[[], bool]) -> bool:
    """Wait until a condition holds; whether it does in time."""
    ends = time.monotonic() + _LOST_SECONDS
    while not condition():
        if time.monotonic() > ends:
            return False
        time.sleep(0.2)
    return True


def nodes() -> dict[str, Any]:
    """The actors of all nodes, by endpoint. Needs a connection to Ray."""
    import ray

    found = ray.util.list_named_actors(all_namespaces=True)
    names = sorted(each["name"] for each in found if each["namespace"] == NAMESPACE)
    return {
        name.removeprefix(PREFIX): ray.get_actor(name, namespace=NAMESPACE) for name in names if name.startswith(PREFIX)
    }
