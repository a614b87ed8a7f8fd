"""Sums of a log of outcomes."""

from __future__ import annotations

import collections
import json
import pathlib


def counts(log: pathlib.Path) -> None:
    """Print how many samples and operators agree, by the kind of call."""
    samples: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    operators: dict[str, dict[str, bool]] = collections.defaultdict(dict)
    for line in log.read_text().splitlines():
        made = json.loads(line)
        for one in made["outcomes"]:
            samples[one["kind"]][one["outcome"]] += 1
            agrees = one["outcome"] == "agrees"
            operators[one["kind"]][made["op"]] = operators[one["kind"]].get(made["op"], True) and agrees
    for kind, found in samples.items():
        total, ops = sum(found.values()), operators[kind]
        print(
            f"{kind}: {found['agrees']:,} of {total:,} samples ({found['agrees'] / total:.2%}), "
            f"{sum(ops.values())} of {len(ops)} operators ({sum(ops.values()) / len(ops):.1%}); {dict(found)}"
        )
