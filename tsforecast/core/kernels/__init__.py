"""Steps of many small filters in C++: built by the machine's compiler, and torch's operations where there is none."""

from tsforecast.core.kernels.building import build, can_build, is_ready

__all__ = ["build", "can_build", "is_ready"]
