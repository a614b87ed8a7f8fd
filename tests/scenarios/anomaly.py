"""Anomaly mode: backward refuses a formula that makes nan, and names its node."""

import warnings

from tests.scenarios.kit import Client, leaf, over_the_wire_only, refused


@refused(RuntimeError, "Function 'DivBackward0' returned nan values in its 1th output")
def anomaly_mode_names_what_made_a_nan(torch):
    x = leaf(torch, 0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with torch.autograd.detect_anomaly():
            z = x * 1
            (z / z).sum().backward()


@refused(RuntimeError, "Function 'SqrtBackward0' returned nan values in its 0th output")
def anomaly_mode_names_the_first_of_a_chain(torch):
    x = leaf(torch, 0.0)
    with torch.autograd.set_detect_anomaly(True):
        y = (x * 2).sqrt() * 0.0
        (y * 3).sum().backward()


@over_the_wire_only(Client.ANOMALY)
def anomaly_mode_ends(torch):
    x = leaf(torch, 0.0)
    with torch.autograd.set_detect_anomaly(True):
        inside = torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()
    y = (x * 2).sqrt() * 0.0
    y.sum().backward()
    return inside, torch.is_anomaly_enabled(), x.grad


def anomaly_mode_without_looking_for_nan(torch):
    x = leaf(torch, 0.0)
    with torch.autograd.set_detect_anomaly(True, check_nan=False):
        y = (x * 2).sqrt() * 0.0
        y.sum().backward()
    return x.grad


def after_an_anomaly_nothing_was_added(torch):
    a, x = leaf(torch), leaf(torch, 0.0)
    with torch.autograd.set_detect_anomaly(True):
        loss = (a * 2).sum() + (x.sqrt() * 0.0).sum()
        try:
            loss.backward()
        except RuntimeError as error:
            said = "returned nan values" in str(error)
    return said, x.grad is None
