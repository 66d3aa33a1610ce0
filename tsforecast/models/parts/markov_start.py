"""Where the parameters of a chain of regimes begin: the best of several runs of EM on the first batch."""

import dataclasses

import torch
from torch import Tensor

from tsforecast.core.regimes.chain import stationary
from tsforecast.core.regimes.em import SwitchingRegression
from tsforecast.models.parts.markov_dynamics import HIGHEST, LOWEST, MarkovDynamics
from tsforecast.models.parts.markov_fit import Kind, Regression, fit, regression, shared_of
from tsforecast.models.parts.markov_inference import MarkovInference
from tsforecast.models.parts.units import scaled
from tsforecast.models.records import Batch


@dataclasses.dataclass(frozen=True)
class EMStart:
    """Sets the parameters of a model from its first batch, once.

    Attributes:
        starts: Number of runs of EM, each from other regimes.
        seed: Seed of those that are random.
    """

    starts: int
    seed: int

    @torch.no_grad()
    def __call__(self, inference: MarkovInference, batch: Batch) -> None:
        """Set parameters to the most likely ones that were found; those of a trained model stay.

        Args:
            inference: Inference in the model.
            batch: Windows of the training data.
        """
        dynamics = inference.dynamics
        if bool(dynamics.is_begun) or not self.starts:
            return
        dynamics.is_begun.fill_(True)
        data = _regression(inference, batch)
        if not bool(data.seen.any()):
            return
        lags = 0 if dynamics.of_mean else len(dynamics.lags)
        covariates = data.design.shape[-1] - 1 - lags
        parts = dynamics.switching_parts
        stay = float(torch.softmax(dynamics.transition, -1)[0, 0])
        kind = Kind(dynamics.regimes, shared_of(parts, lags, covariates), "scale" not in parts, stay)
        _adopt(dynamics, _ordered(fit(data, kind, self.starts, self.seed).model, dynamics))


def _regression(inference: MarkovInference, batch: Batch) -> Regression:
    """Return regressors (one, lags unless regimes have means, covariates), values, and where all are known."""
    dynamics = inference.dynamics
    time_slice, (location, scale) = inference.slice_of(batch, "both"), inference.scale_of(batch)
    values, seen = scaled(time_slice, location, scale)
    seen = time_slice.observed if seen is None else seen
    values, seen = values.squeeze(-1).double().cpu(), seen.squeeze(-1).cpu()
    inputs = time_slice.dynamic_real.double().cpu().expand(len(values), values.shape[1], -1)
    return regression(values, seen, () if dynamics.of_mean else dynamics.lags, inputs)


def _ordered(model: SwitchingRegression, dynamics: MarkovDynamics) -> SwitchingRegression:
    """Return the regimes from calm to wild, or where they share the noise from low to high."""
    key = model.variance if "scale" in dynamics.switching_parts else model.coefficient[:, 0]
    order = key.argsort()
    return SwitchingRegression(model.coefficient[order], model.variance[order], model.log_transition[order][:, order])


def _adopt(dynamics: MarkovDynamics, model: SwitchingRegression) -> None:
    """Writes a fitted regression into the parameters of the model."""
    parts, lags = dynamics.switching_parts, 0 if dynamics.of_mean else len(dynamics.lags)

    def own(name: str, values: Tensor) -> Tensor:
        return values if name in parts else values[:1]

    dynamics.location.copy_(own("location", model.coefficient[:, 0]))
    dynamics.log_scale.copy_(own("scale", 0.5 * model.variance.log()).clamp(LOWEST + 0.1, HIGHEST - 0.1))
    if lags:
        dynamics.coefficients.copy_(own("coefficients", model.coefficient[:, 1 : 1 + lags]))
    elif dynamics.lags:
        dynamics.coefficients.zero_()
    if dynamics.effects is not None:
        dynamics.effects.copy_(own("effects", model.coefficient[:, 1 + lags :]))
    dynamics.transition.copy_(model.log_transition)
    if dynamics.initial is not None:
        dynamics.initial.copy_(stationary(model.log_transition))
