"""Estimators of river (https://riverml.xyz): dictionaries or frames in, features and classes as they come."""

from tsforecast.online.river.classifier import OnlineClassifier
from tsforecast.online.river.regressor import OnlineRegressor

__all__ = ["OnlineClassifier", "OnlineRegressor"]
