"""Mixed precision (torch.amp): the scaler of losses; autocast itself is not supported and says so."""

from gradwire._base.wiring import names_of_paths
from gradwire.amp._autocast import autocast
from gradwire.amp._scaler import GradScaler

__all__ = ["GradScaler", "autocast"]

__getattr__ = names_of_paths(__name__)
