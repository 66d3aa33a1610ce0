"""What a fitted model says beside its forecasts: regimes, anomalies, effects of interventions, and news."""
