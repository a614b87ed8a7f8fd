"""Processes: Ctrl-C, the end of the embedded server, forks, lazy imports, the command."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import psutil
import pytest

SECONDS = 200


def start(code: str, **environment: str) -> "subprocess.Popen[str]":
    """A Python program as a child process."""
    given = {name: value for name, value in os.environ.items() if not name.startswith("GRADWIRE_")}
    return subprocess.Popen(
        [sys.executable, "-u", "-c", textwrap.dedent(code)],
        env={**given, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(child: "subprocess.Popen[str]", said: str = "") -> "tuple[int, str, str]":
    """Its status and what it wrote; it does not outlive the test, nor the server that it may have started."""
    try:
        out, err = child.communicate(said, timeout=SECONDS)
    finally:
        child.kill()
        child.wait()
    return child.returncode, out, err


def run(code: str, **environment: str) -> "tuple[int, str, str]":
    return finish(start(code, **environment))


def test_with_no_address_a_server_starts_by_itself_and_ends_with_the_program():
    code, out, err = run(
        """
        import gradwire as torch
        x = torch.tensor([3.0], requires_grad=True)
        (x * x).backward()
        session = torch.current_session()
        print(x.grad.item(), session._embedded._process.pid, session._embedded._folder)
        """
    )
    assert code == 0, err
    value, pid, folder = out.split()
    assert value == "6.0"
    assert not psutil.pid_exists(int(pid))
    assert not Path(folder).exists()


def test_at_the_end_sessions_close_before_the_server_they_share():
    code, out, err = run(
        """
        import gradwire as torch
        from gradwire._transport.transport import Transport

        call = Transport.call
        def told(self, name, *args, **kwargs):
            try:
                return call(self, name, *args, **kwargs)
            except torch.GradwireError as error:
                print(name, error)
                raise
        Transport.call = told

        owner = torch.connect()
        guest = torch.connect(owner.address)
        print(torch.ones(2).tolist())
        """
    )
    assert (code, out, err) == (0, "[1.0, 1.0]\n", "")


def test_a_session_whose_server_died_says_what_to_do_and_closes():
    code, out, err = run(
        """
        import os
        import gradwire as torch
        x = torch.ones(2)
        dead = torch.current_session()
        folder = dead._embedded._folder
        dead._embedded._process.kill()
        dead._embedded._process.wait()
        for _ in range(2):
            try:
                x.tolist()
            except ConnectionError as error:
                print(error)
        dead.close()
        print(os.path.exists(folder))
        torch.connect()
        print(torch.ones(2).tolist())
        """
    )
    assert code == 0, err
    said, again, left, alive = out.splitlines()
    assert said == again
    assert "ended with status -9; its tensors are gone. gradwire.connect() starts another" in said
    assert (left, alive) == ("False", "[1.0, 1.0]")


def test_the_embedded_server_dies_with_its_parent_by_sigkill():
    child = start(
        """
        import gradwire as torch
        torch.ones(3).tolist()
        print(torch.current_session()._embedded._process.pid, flush=True)
        input()
        """
    )
    assert child.stdout is not None
    server = psutil.Process(int(child.stdout.readline()))
    child.kill()
    finish(child)
    server.wait(timeout=SECONDS)
    assert not server.is_running()


def test_the_embedded_server_survives_ctrl_c_in_the_terminal():
    child = start(
        """
        import os, signal
        import gradwire as torch
        x = torch.ones(3)
        server = torch.current_session()._embedded._process.pid
        assert os.getsid(server) != os.getsid(0)
        print((x * 2).tolist())
        """
    )
    code, out, err = finish(child)
    assert code == 0, err
    assert out.strip() == "[2.0, 2.0, 2.0]"


def test_ctrl_c_ends_a_wait_and_the_session_goes_on():
    child = start(
        """
        import gradwire as torch
        x = torch.ones(500, 500)
        y = x @ x
        try:
            print("ready", flush=True)
            while True:
                y = (x @ y).clamp(0, 1)
                z = y.sum().item()
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        print((torch.ones(2) * 3).tolist(), flush=True)
        """
    )
    assert child.stdout is not None
    assert child.stdout.readline().strip() == "ready"
    child.send_signal(signal.SIGINT)
    _, out, err = finish(child)
    assert out.split("\n")[:2] == ["interrupted", "[3.0, 3.0]"], err


def test_a_session_from_before_a_fork_is_refused_in_the_child(server_address):
    code, out, err = run(
        """
        import os
        import gradwire as torch
        x = torch.ones(3)
        y = x * 2
        child = os.fork()
        if child == 0:
            try:
                x * 2
            except ConnectionError as error:
                print("fork" in str(error), flush=True)
            try:
                x.tolist()
            except ConnectionError as error:
                print("fork" in str(error), flush=True)
            torch.connect()
            print(torch.ones(2).tolist(), flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        print(x.tolist())
        """,
        GRADWIRE_ADDRESS=server_address,
    )
    assert code == 0, err
    assert out.split("\n")[:4] == ["True", "True", "[1.0, 1.0]", "[1.0, 1.0, 1.0]"]


def test_a_forked_child_does_not_keep_the_embedded_server_alive():
    child = start(
        """
        import os, sys
        import gradwire as torch
        torch.ones(3).tolist()
        pid = torch.current_session()._embedded._process.pid
        forked = os.fork()
        if forked == 0:
            sys.stdin.readline()
            os._exit(0)
        print(pid, forked, flush=True)
        os.kill(os.getpid(), 9)
        """
    )
    assert child.stdout is not None
    server, forked = [psutil.Process(int(pid)) for pid in child.stdout.readline().split()]
    server.wait(timeout=SECONDS)
    assert forked.is_running()
    finish(child, "\n")


def test_without_the_server_package_the_first_use_says_what_to_install():
    code, _, err = run(
        """
        import subprocess, sys
        real = subprocess.Popen
        class Popen(real):
            def __init__(self, command, **options):
                super().__init__([sys.executable, "-m", "no_such_gradwire_server"], **options)
        subprocess.Popen = Popen
        import gradwire as torch
        torch.ones(1)
        """
    )
    assert code != 0
    assert "pip install gradwire[server]" in err
    assert "GRADWIRE_ADDRESS" in err


def test_importing_the_messages_loads_no_client():
    code, out, err = run(
        """
        import sys
        import gradwire.v1.types_pb2, gradwire.v1.service_pb2
        print(sorted(name for name in sys.modules if name.startswith("gradwire.") and ".v1" not in name))
        """
    )
    assert code == 0, err
    assert out.strip() == "[]"


def test_importing_gradwire_starts_nothing():
    code, out, err = run(
        """
        import threading
        import gradwire as torch
        torch.nn, torch.optim, torch.autograd, torch.Tensor, torch.float32, torch.Size([1]), torch.device("cpu")
        print(len(threading.enumerate()))
        """
    )
    assert code == 0, err
    assert out.strip() == "1"


@pytest.mark.parametrize("arguments", [[], ["--flag", "value"]])
def test_gradwire_run_aliases_torch_for_an_unmodified_program(tmp_path, server_address, arguments):
    script = tmp_path / "program.py"
    script.write_text(
        textwrap.dedent(
            """
            import sys
            import torch
            import torch.nn as nn
            import torch.nn.functional as F
            from torch.autograd import grad
            import helper
            x = torch.ones(2, requires_grad=True)
            (found,) = grad(F.relu(x).sum(), x)
            print(torch.__spec__.name, found.tolist(), sys.argv[1:], __name__, helper.VALUE)
            """
        )
    )
    (tmp_path / "helper.py").write_text("VALUE = 5\n")
    done = subprocess.run(
        [sys.executable, "-m", "gradwire._cli.main", "run", "--address", server_address, str(script), *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == f"gradwire [1.0, 1.0] {arguments} __main__ 5"
