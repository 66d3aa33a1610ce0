"""From data to forecasts: the estimator, its predictor, beliefs that are kept and moved on, and adaptation."""
