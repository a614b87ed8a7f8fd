"""Write scenarios/*.json with live PyTorch's answers, and golden.json.

With --check nothing is written and stale files are named.

python -m tests.conformance.make [--check]
"""

import argparse
import copy
import json
import math
import sys
from pathlib import Path
from typing import Any

from tests.conformance import golden
from tests.conformance.cases import SUBJECTS, Scenario
from tests.conformance.interpreter import Recorder

FOLDER = Path(__file__).parent / "scenarios"
GOLDEN = Path(__file__).parent / "golden.json"


def recorded(given: Scenario) -> Scenario:
    """The scenario with PyTorch's answers."""
    import torch

    scenario = copy.deepcopy(given)
    recorder = Recorder(torch)
    try:
        recorder.run(scenario["steps"])
    except Exception as error:
        raise RuntimeError(f"{scenario['name']}: {error}") from error
    return scenario


def texts() -> dict[str, str]:
    """What each file should hold."""
    return {f"{subject}.json": dump([recorded(each) for each in scenarios]) for subject, scenarios in SUBJECTS.items()}


def dump(scenarios: list[Scenario]) -> str:
    """JSON with one line for each step."""

    def line(value: Any) -> str:
        return json.dumps(value, ensure_ascii=False)

    written = []
    for scenario in scenarios:
        head = "".join(f'"{key}": {line(value)}, ' for key, value in scenario.items() if key != "steps")
        steps = ",\n    ".join(line(step) for step in scenario["steps"])
        written.append(f'  {{{head}"steps": [\n    {steps}\n  ]}}')
    return "[\n" + ",\n".join(written) + "\n]\n"


def stale(made: dict[str, str]) -> list[str]:
    """Names of the files that are not what they should be."""
    there = {path.name: path.read_text("utf-8") for path in FOLDER.glob("*.json")}
    return sorted(
        name
        for name in made.keys() | there.keys()
        if name not in made or name not in there or not is_same(made[name], there[name])
    )


def is_same(made: str, there: str) -> bool:
    """Whether two files of answers are alike but for the last digits, in which PyTorch's kernels differ by CPU."""
    return made == there or _is_near(json.loads(made), json.loads(there))


def _is_near(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if type(one) is dict:
        return list(one) == list(other) and all(_is_near(one[key], other[key]) for key in one)
    if type(one) is list:
        return len(one) == len(other) and all(map(_is_near, one, other))
    if type(one) is float:
        return math.isclose(one, other, rel_tol=1e-6, abs_tol=1e-8)
    return bool(one == other)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; fail if a file is stale")
    check = parser.parse_args().check
    made = texts()
    names = stale(made)
    if not GOLDEN.exists() or GOLDEN.read_text("utf-8") != golden.text():
        names.append(GOLDEN.name)
    if check and names:
        sys.exit(f"stale: {', '.join(names)}; run `python -m tests.conformance.make`")
    if not check:
        for name, text in made.items():
            (FOLDER / name).write_text(text, "utf-8")
        GOLDEN.write_text(golden.text(), "utf-8")


if __name__ == "__main__":
    main()
