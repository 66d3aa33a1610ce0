"""What covariates do to series: curves that are estimated in closed form, and taken away before a model sees them."""
