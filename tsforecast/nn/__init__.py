"""Networks that return parameters of core objects."""

from tsforecast.nn.parameters import ScaleNetwork, SeriesParameters

__all__ = ["ScaleNetwork", "SeriesParameters"]
