"""`gradwire run`: `torch` is gradwire in the program, and in the processes that it starts."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import gradwire
from gradwire._cli.main import main

PROGRAM = """
import multiprocessing, subprocess, sys
import torch

def child(queue):
    import torch.nn.functional as F
    queue.put((torch.__spec__.name, F.relu(torch.tensor([-1.0, 2.0])).tolist()))

if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    queue = context.Queue()
    process = context.Process(target=child, args=(queue,))
    process.start()
    print(queue.get(timeout=150))
    process.join()
    command = [sys.executable, "-c", "import torch, os; print(torch.__spec__.name, os.environ.get('HIDDEN'))"]
    print(subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip())
"""


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_torch_is_gradwire_in_the_processes_that_a_program_starts(
    server_address: str, tmp_path: Path, method: str
) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text("import os\nos.environ['HIDDEN'] = 'ran'\n")
    path = os.pathsep.join([str(tmp_path / "site"), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-m", "gradwire", "run", str(tmp_path / "program.py"), method],
        env={**os.environ, "GRADWIRE_ADDRESS": server_address, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["('gradwire', [0.0, 2.0])", "gradwire ran"], done.stderr


def test_a_child_looks_for_modules_in_the_same_order_as_without(tmp_path: Path) -> None:
    """A path that has gradwire stays where it is."""
    home = Path(gradwire.__file__).parents[1]
    site = home / "gradwire" / "_site"
    before = [str(home), str(tmp_path)]

    def found(*first: str, **alias: str) -> list[str]:
        path = os.pathsep.join([*first, *before])
        command = [sys.executable, "-c", "import sys; print(*sys.path, sep='\\n')"]
        done = subprocess.run(
            command, env={**os.environ, **alias, "PYTHONPATH": path}, capture_output=True, text=True, check=True
        )
        assert not done.stderr
        return done.stdout.splitlines()

    plain = found()
    assert found(str(site), GRADWIRE_ALIAS_TORCH="1") == [*plain[:1], str(site), *plain[1:]]


def test_a_missing_program_is_a_usage_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = str(tmp_path / "missing.py")
    with pytest.raises(SystemExit) as ended:
        main(["run", missing])
    assert ended.value.code == 2
    assert capsys.readouterr().err.endswith(f"gradwire run: error: there is no file {missing}\n")
