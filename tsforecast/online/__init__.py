"""Learning from streams: prequential evaluation, and estimators of river and scikit-learn."""
