"""Loss functions: elementwise, classification, multi-label, margin, likelihood, CTC."""

from gradwire_engine.ops.nn.losses import classification, ctc, labels, likelihood, loss, margin

__all__ = ["classification", "ctc", "labels", "likelihood", "loss", "margin"]
