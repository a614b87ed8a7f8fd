"""Test Studio (`make test-studio`): lint, types, committed build, units, and its pages in Chromium with a live server.

    python -m tests.studio [--shots FOLDER] [--units]

The playground's language is compared with PyTorch's answers: committed ones, and those to random programs. The seed of
these is GRADWIRE_FUZZ_SEED, "fresh" for another one in each run.

Without Node or its packages all of it is skipped, without Chromium its pages are, each with a sentence. --shots writes
pictures of the pages, which docs/studio.md shows.
"""

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

from tests.studio.layouts import write
from tests.studio.programs import COMMITTED, committed, write_random

FOLDER = Path(__file__).resolve().parents[2] / "client" / "studio"
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_PREPARE_SECONDS = 120
_TEST_SECONDS = 480
_OLDEST_NODE = 20


def lacking() -> str:
    """What the tests lack here, or nothing. Installs the packages that they need."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        return "Node is not installed"
    version = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout.strip()
    if int(version.lstrip("v").partition(".")[0]) < _OLDEST_NODE:
        return f"Node {version} is older than {_OLDEST_NODE}"
    installing = ["npm", "ci", "--no-audit", "--no-fund"]
    try:
        done = subprocess.run(
            installing, cwd=FOLDER, capture_output=True, text=True, timeout=_PREPARE_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return "its packages did not arrive in time"
    if "EUSAGE" in done.stderr:  # no fault of the network: the committed files contradict each other
        sys.exit(f"Studio: package.json and package-lock.json do not fit together:\n{done.stderr[:1000]}")
    return "" if done.returncode == 0 else f"its packages cannot be installed: {done.stderr.strip()[-300:]}"


def browser() -> str | None:
    """The path of Chromium; GRADWIRE_CHROMIUM names one elsewhere."""
    return os.environ.get("GRADWIRE_CHROMIUM") or next(
        (path for name in _BROWSERS if (path := shutil.which(name))), None
    )


def random_programs(folder: str) -> dict[str, str]:
    """Where the random programs are, as environment of their test. Fails if the committed answers are stale."""
    if find_spec("torch") is None:
        print("Studio: random programs are skipped, since PyTorch is not installed")
        return {}
    if COMMITTED.read_text("utf-8") != committed():
        sys.exit("Studio: PyTorch answers the playground's programs otherwise: run `python -m tests.studio.programs`")
    given = os.environ.get("GRADWIRE_FUZZ_SEED", "1")
    seed = random.randrange(1 << 30) if given == "fresh" else int(given)
    path = Path(folder) / "programs.json"
    write_random(path, seed)
    return {"STUDIO_PROGRAMS": str(path)}


def run(what: str, *command: str, **environment: str) -> None:
    """Run a step in Studio's folder. Raises SystemExit if it fails."""
    began = time.monotonic()
    done = subprocess.run(command, cwd=FOLDER, env={**os.environ, **environment}, timeout=_TEST_SECONDS, check=False)
    if done.returncode:
        sys.exit(f"Studio: {what} FAILED")
    print(f"Studio: {what} passed in {time.monotonic() - began:.0f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shots", type=Path, help="folder for pictures of the pages")
    parser.add_argument("--units", action="store_true", help="without the browser")
    given = parser.parse_args()
    if absent := lacking():
        print(f"Studio: skipped, since {absent}")
        return
    run("lint", "npx", "biome", "ci", ".")
    run("types", "npx", "tsc", "--noEmit")
    run("the committed build", "node", "check-built.mjs")
    with tempfile.TemporaryDirectory() as folder:
        layouts = Path(folder) / "layouts.json"
        write(layouts)
        run("units", "npx", "vitest", "run", "test/unit", STUDIO_LAYOUTS=str(layouts))
    if given.units:
        return
    if find_spec("starlette") is None:
        print("Studio: its pages and its playground's language are not tested, since the extra [web] is not installed")
        return
    with tempfile.TemporaryDirectory() as folder:
        drawn = random_programs(folder)
        run("the language", "npx", "vitest", "run", "test/server", STUDIO_PYTHON=sys.executable, **drawn)
    chromium = browser()
    if chromium is None:
        print("Studio: its pages are not tested, since Chromium is not installed")
        return
    shots = {"STUDIO_SHOTS": str(given.shots.resolve())} if given.shots else {}
    run(
        "pages", "npx", "vitest", "run", "test/browser", STUDIO_PYTHON=sys.executable, STUDIO_CHROMIUM=chromium, **shots
    )


if __name__ == "__main__":
    main()
