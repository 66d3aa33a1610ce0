"""Where the parameters of a chain of regimes begin: the best of several runs of EM on the first batch."""

import dataclasses

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tsforecast.core.regimes.em import SwitchingRegression, em_step
from tsforecast.models.parts.markov_dynamics import HIGHEST, LOWEST, MarkovDynamics
from tsforecast.models.parts.markov_inference import MarkovInference
from tsforecast.models.parts.units import scaled
from tsforecast.models.records import Batch

_FEW, _MANY = 12, 25  # steps of EM of every start, and of the best one after them
_LEAST_SHARE = 1e-3  # of the variance of all residuals, that a regime must have: else one value could be a regime


@dataclasses.dataclass(frozen=True)
class EMStart:
    """Sets the parameters of a model from its first batch, once.

    Attributes:
        starts: Number of runs of EM, each from other random regimes.
        seed: Seed of these.
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
        design, values, seen = _regression(inference, batch)
        if not bool(seen.any()):
            return
        shared = _shared(dynamics, design.shape[-1])
        first = _one_regime(design, values, seen, dynamics)
        generator = torch.Generator().manual_seed(self.seed)
        floor = max(_LEAST_SHARE * float(first.variance.mean()), torch.finfo(values.dtype).tiny)
        one_scale = "scale" not in dynamics.switching_parts

        def improved(model: SwitchingRegression, steps: int) -> tuple[SwitchingRegression, float]:
            terms = values.new_zeros(1)
            for _ in range(steps):
                model, terms = em_step(
                    model, design, values, seen, shared=shared, shared_variance=one_scale, floor=floor
                )
            return model, float(terms.sum())

        runs = [improved(_apart(first, dynamics, generator), _FEW) for _ in range(self.starts)]
        best, _ = improved(max(runs, key=lambda one: one[1])[0], _MANY)
        _adopt(dynamics, _ordered(best, dynamics))


def _regression(
    inference: MarkovInference, batch: Batch
) -> tuple[Float[Tensor, "time series regressor"], Float[Tensor, "time series"], Bool[Tensor, "time series"]]:
    """Return regressors (one, lags unless regimes have means, covariates), values, and where all are known."""
    dynamics = inference.dynamics
    time_slice, (location, scale) = inference.slice_of(batch, "both"), inference.scale_of(batch)
    values, seen = scaled(time_slice, location, scale)
    seen = time_slice.observed if seen is None else seen
    values, seen = values.squeeze(-1).double().cpu(), seen.squeeze(-1).cpu()
    lags = () if dynamics.of_mean else dynamics.lags
    usable, columns = seen, [torch.ones_like(values)]
    for lag in lags:
        columns.append(torch.cat([torch.zeros_like(values[:lag]), values[:-lag]])[: len(values)])
        usable = usable & torch.cat([torch.zeros_like(seen[:lag]), seen[:-lag]])[: len(values)]
    inputs = time_slice.dynamic_real.double().cpu().expand(len(values), values.shape[1], -1)
    design = torch.cat([torch.stack(columns, -1), inputs], -1)
    return design, torch.where(usable, values, 0.0), usable


def _shared(dynamics: MarkovDynamics, size: int) -> tuple[int, ...]:
    """Return the numbers of the regressors with coefficients that all regimes share."""
    lags = 0 if dynamics.of_mean else len(dynamics.lags)
    kinds = ["location", *["coefficients"] * lags, *["effects"] * (size - 1 - lags)]
    return tuple(number for number, kind in enumerate(kinds) if kind not in dynamics.switching_parts)


def _one_regime(design: Tensor, values: Tensor, seen: Tensor, dynamics: MarkovDynamics) -> SwitchingRegression:
    """Return the least squares of a single regime, for all of them."""
    rows, wanted = design[seen], values[seen]
    coefficient = torch.linalg.pinv(rows) @ wanted
    variance = (wanted - rows @ coefficient).square().mean().clamp_min(1e-8)
    regimes = dynamics.regimes
    return SwitchingRegression(
        coefficient.expand(regimes, -1),
        variance.expand(regimes),
        torch.log_softmax(dynamics.transition.double().cpu(), -1),
        values.new_zeros(regimes).log_softmax(-1),
    )


def _apart(first: SwitchingRegression, dynamics: MarkovDynamics, generator: torch.Generator) -> SwitchingRegression:
    """Return regimes that differ at random in their intercepts and variances."""

    def noise(like: Tensor) -> Tensor:
        return torch.randn(like.shape, generator=generator, dtype=like.dtype)

    coefficient, variance = first.coefficient.clone(), first.variance
    if "location" in dynamics.switching_parts:
        coefficient[:, 0] += variance.sqrt() * noise(variance)
    if "scale" in dynamics.switching_parts:
        variance = variance * noise(variance).exp()
    if {"coefficients", "effects"} & {*dynamics.switching_parts}:
        coefficient[:, 1:] += 0.3 * noise(coefficient[:, 1:])
    return dataclasses.replace(first, coefficient=coefficient, variance=variance)


def _ordered(model: SwitchingRegression, dynamics: MarkovDynamics) -> SwitchingRegression:
    """Return the regimes from calm to wild, or where they share the noise from low to high."""
    key = model.variance if "scale" in dynamics.switching_parts else model.coefficient[:, 0]
    order = key.argsort()
    return SwitchingRegression(
        model.coefficient[order],
        model.variance[order],
        model.log_transition[order][:, order],
        None if model.initial is None else model.initial[order],
    )


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
    dynamics.transition.copy_(model.log_transition.clamp_min(-7.0))
    if dynamics.initial is not None and model.initial is not None:
        dynamics.initial.copy_(model.initial.clamp_min(-7.0))
