"""The report of missing names is that of the installed PyTorch."""

import json

import pytest

from tests.parity import missing_names

torch = pytest.importorskip("torch", reason="PyTorch is what is compared with")


@pytest.mark.parametrize("path", missing_names.MODULES)
def test_the_report_lists_what_is_missing(path):
    told = json.loads(missing_names.REPORT.read_text(encoding="utf-8"))
    # Renew it by `python -m tests.parity.missing_names --write`.
    assert missing_names.missing(path) == told[path]


def test_a_name_that_is_here_is_not_missing():
    assert "sin" not in missing_names.missing("torch")
    assert "embedding_renorm_" in missing_names.missing("torch")
