"""Mixed precision (torch.amp): the scaler of losses; autocast itself is not supported and says so."""

from gradwire.amp._autocast import autocast
from gradwire.amp._scaler import GradScaler

__all__ = ["GradScaler", "autocast"]
