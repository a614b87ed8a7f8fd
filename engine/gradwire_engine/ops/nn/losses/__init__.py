"""Losses: of elements, of classes, of labels, with margins, of distributions, and CTC."""

from gradwire_engine.ops.nn.losses import classification, ctc, labels, likelihood, loss, margin

__all__ = ["classification", "ctc", "labels", "likelihood", "loss", "margin"]
