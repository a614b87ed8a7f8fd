"""Mixed precision (torch.amp): autocast and the scaler of losses."""

from gradwire._base.wiring import names_of_paths
from gradwire.amp._autocast import autocast, custom_bwd, custom_fwd, is_autocast_available
from gradwire.amp._scaler import GradScaler

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd", "is_autocast_available"]

__getattr__ = names_of_paths(__name__)
