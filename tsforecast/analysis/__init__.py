"""Answers of a fitted model beside its forecasts: regimes, anomalies, effects of interventions, and news."""

from tsforecast.analysis.anomalies import anomalies

__all__ = ["anomalies"]
