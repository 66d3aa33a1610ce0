"""Where the parameters of a chain of regimes begin: the best of several runs of EM on the first batch."""

import dataclasses

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.core.regimes.em import SwitchingRegression, expected
from tsforecast.models.parts.markov_counts import MarkovCountDynamics
from tsforecast.models.parts.markov_fit import Kind, Regression, fit, ordered, regression, shared_of
from tsforecast.models.parts.markov_inference import MarkovInference
from tsforecast.models.parts.units import scaled
from tsforecast.models.records import Batch, Series

_LEVELS = 4  # times that regimes and levels of series are found in turn


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
        lags = 0 if dynamics.of_mean else len(dynamics.lags) * dynamics.targets
        covariates = data.design.shape[-1] - 1 - lags
        parts = dynamics.switching_parts
        stay = 1 - (1 - float(torch.softmax(dynamics.transition, -1)[0, 0])) / dynamics.stages  # in a stage
        shared = shared_of(parts, lags, covariates)
        kind = Kind(dynamics.regimes, shared, "scale" not in parts, stay, dynamics.stages)
        if not isinstance(dynamics, MarkovCountDynamics):
            dynamics.adopt(ordered(fit(data, kind, self.starts, self.seed).model, "scale" in parts))
            return
        found, level = _levelled(data, kind, self.starts, self.seed)
        found.coefficient[:, 0] += level.mean()
        dynamics.adopt(found)
        dynamics.adopt_levels((level - level.mean()).squeeze(-1), Series.of(batch).index.cpu())


def _regression(inference: MarkovInference, batch: Batch) -> Regression:
    """Return regressors (one, lags unless regimes have means, covariates), values, and where all are known."""
    dynamics = inference.dynamics
    time_slice, (location, scale) = inference.slice_of(batch, "both"), inference.scale_of(batch)
    values, seen = scaled(time_slice, location, scale)
    seen = time_slice.observed if seen is None else seen
    values, seen = values.double().cpu(), seen.cpu()  # many small steps: a GPU would wait for each
    if inference.units.support == "counts":
        values = torch.where(seen, values.clamp_min(0.0), 0.0).log1p()  # EM is of Gaussian regressions
    inputs = time_slice.dynamic_real.double().cpu().expand(len(values), values.shape[1], -1)
    return regression(values, seen, () if dynamics.of_mean else dynamics.lags, inputs)


def _levelled(
    data: Regression, kind: Kind, starts: int, seed: int
) -> tuple[SwitchingRegression, Float[Tensor, "series target"]]:
    """Return regimes from low to high and levels of series, found in turn.

    A series that is often in a high regime has no high level by that.
    """
    seen = data.seen.unsqueeze(-1)
    level, turn = data.values.sum(0) / seen.sum(0).clamp_min(1), 0
    while True:
        centred = dataclasses.replace(data, values=torch.where(seen, data.values - level, 0.0))
        found = ordered(fit(centred, kind, starts, seed).model, by_noise=False)
        parts = (x.unsqueeze(0) for x in (found.coefficient, found.cov, found.log_transition))
        coefficient, cov, transition = parts
        one = SwitchingRegression(coefficient, cov, transition, stages=found.stages)
        weight = expected(one, centred.design, centred.values, data.seen).weight[:, 0]
        mean = torch.einsum("tsk,tsd,kdo->tso", weight, centred.design, found.coefficient)
        level = level + torch.where(seen, centred.values - mean, 0.0).sum(0) / seen.sum(0).clamp_min(1)
        turn += 1
        if turn == _LEVELS:
            return found, level
