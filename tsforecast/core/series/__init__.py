"""Likelihood of whole series and its adjoint, beside the step form of the filter."""
