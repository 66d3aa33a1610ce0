"""Effects of covariates: curves, estimated in closed form and taken from targets before a model sees them."""
