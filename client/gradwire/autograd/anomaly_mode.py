"""torch.autograd.anomaly_mode: backward that names what made a nan."""

from gradwire._graph.anomaly import detect_anomaly, set_detect_anomaly

__all__ = ["detect_anomaly", "set_detect_anomaly"]
