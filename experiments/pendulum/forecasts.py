"""The models of `run.py`, their forecasts as mixtures of Gaussians, and the scores of these."""

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tsforecast.core import Gaussian, particles
from tsforecast.core.mixture import GaussianMixture
from tsforecast.models import Batch, RSGLSForecaster, Series, SGLSForecaster
from tsforecast.models import make_model as build
from tsforecast.models.parts.units import scaled

Model = RSGLSForecaster | SGLSForecaster
MODELS: dict[str, type[Model]] = {"rsgls": RSGLSForecaster, "sgls": SGLSForecaster}
FILTERED, FORECAST = 50, 100  # steps
PARTICLES = 100  # to evaluate with
# The models see positions in this unit, about the movement of a step, for which their initial noises are meant.
UNIT = 0.2  # m


ScoreTable = dict[str, NDArray[np.float64]]


def make_batch(positions: Tensor, num_ahead: int = 0) -> Batch:
    """Positions in metres, (sequence, time, 2), as a batch of pasts without covariates; what follows them is missing.

    Args:
        positions: Observed.
        num_ahead: Steps without observation to append: filtering through them is forecasting.
    """
    count, length = len(positions), positions.shape[1] + num_ahead
    batch: Batch = {
        "series_index": torch.zeros(count, dtype=torch.long),
        "static_cat": torch.zeros(count, 0, dtype=torch.long),
        "static_real": torch.zeros(count, 0),
        "past_target": torch.nn.functional.pad(positions / UNIT, (0, 0, 0, num_ahead)),
        "past_observed": (torch.arange(length) < positions.shape[1])[None, :, None].expand(count, -1, 2),
        "past_is_pad": torch.zeros(count, length, dtype=torch.bool),
    }
    for part, steps in (("past", length), ("future", 0)):
        # One constant as time feature: layers without inputs cannot be initialised.
        batch[f"{part}_time_feat"] = torch.zeros(count, steps, 1)
        batch[f"{part}_season_index"] = torch.zeros(count, steps, 0, dtype=torch.long)
        batch[f"{part}_dynamic_real"] = torch.zeros(count, steps, 0)
    return batch


def make_model(name: str, num_particles: int, learning_rate: float = 1e-2) -> Model:
    """The model in the size of the paper."""
    return build(
        MODELS[name],
        freq="100ms",
        prediction_length=FORECAST,
        num_targets=2,
        num_time_features=1,
        state_dim=3,
        switch_dim=5,
        num_bases=10,
        hidden=32,
        embedding_dim=1,
        proposal="bootstrap",
        num_particles=num_particles,
        learning_rate=learning_rate,
        network_learning_rate=learning_rate,
        transformation="none",
        # Gravity pulls down wherever a sequence begins: centring every sequence by itself would hide where down is.
        scaling="none",
        clip="none",
    )


@torch.no_grad()
def track(
    model: Model,
    observed: Tensor,
    num_ahead: int,
    generator: torch.Generator,
    num_particles: int = PARTICLES,
) -> GaussianMixture:
    """Filter distribution of each observed position and forecast distribution of the next, (time, sequence), in metres.

    Args:
        model: Trained.
        observed: Noisy positions, (sequence, time, 2).
        num_ahead: Steps to forecast.
        generator: Of random numbers.
        num_particles: Components of the mixture.
    """
    batch = make_batch(observed, num_ahead)
    time_slice, (location, scale) = model.inference.slice_of(batch, "past"), model.inference.scale_of(batch)
    system, prior = model.dynamics.switching(time_slice, Series.of(batch), location, scale, proposing=True)
    values, mask = scaled(time_slice, location, scale)
    start = system.begin(num_particles, prior)
    history = particles.filter(system, start, values, mask, keep_history=True, generator=generator).history
    assert history is not None
    means, covs = [], []
    for step in range(len(values)):
        state = Gaussian(history.state.mean[step], history.state.cov[step])
        emitted = system.regime(history.switch[step], step).emission.marginal(state)
        means.append(emitted.mean)
        covs.append(emitted.cov)
    emitted = Gaussian(torch.stack(means, 1) * UNIT, torch.stack(covs, 1) * UNIT**2)
    return GaussianMixture(history.log_weight.transpose(0, 1), emitted)


def mixture_crps(mixture: GaussianMixture, value: Tensor) -> Tensor:
    """CRPS of each component of a Gaussian mixture in closed form (Grimit et al. 2006), (*batch, dim).

    CRPS = sum_i w_i a(y - m_i, v_i) - 1/2 sum_ij w_i w_j a(m_i - m_j, v_i + v_j),   a(m, v) = E|N(m, v)|
    """
    weight = mixture.log_weight.exp().unsqueeze(-1)
    mean, variance = mixture.components.mean, mixture.components.variance
    error = (weight * _mean_size(value - mean, variance)).sum(0)
    spread = torch.zeros_like(error)
    for own_weight, own_mean, own_variance in zip(weight, mean, variance, strict=True):
        spread += own_weight * (weight * _mean_size(mean - own_mean, variance + own_variance)).sum(0)
    return error - 0.5 * spread


def _mean_size(mean: Tensor, variance: Tensor) -> Tensor:
    """E|X| of X ~ N(mean, variance)."""
    deviation = variance.sqrt()
    ratio = mean / deviation
    return mean * torch.special.erf(ratio / math.sqrt(2)) + deviation * math.sqrt(2 / math.pi) * (-0.5 * ratio**2).exp()


def score(model: Model, truth: Tensor, observed: Tensor, seed: int) -> ScoreTable:
    """RMSE, CRPS and log-likelihood by forecast step, over all sequences; see the module.

    Args:
        model: Trained.
        truth: True positions, (sequence, time, 2); the first `FILTERED` steps are filtered, the others forecast.
        observed: Noisy ones.
        seed: Of random numbers.
    """
    generator = torch.Generator().manual_seed(seed)
    sums: dict[str, Tensor] = {}
    for true, noisy in zip(truth.split(100), observed.split(100), strict=True):  # more would need much memory
        ahead = noisy.shape[1] - FILTERED
        mixture = _from_step(track(model, noisy[:, :FILTERED], ahead, generator), FILTERED)
        true, noisy = (x[:, FILTERED:].transpose(0, 1) for x in (true, noisy))
        by_step = {
            "rmse": (mixture.mean - true).square().mean(-1).sum(1),
            "crps": mixture_crps(mixture, noisy).mean(-1).sum(1),
            "log_likelihood": mixture.log_prob(noisy).sum(1),
        }
        sums = {name: sums.get(name, 0) + value for name, value in by_step.items()}
    scores = {name: (value / len(truth)).double().numpy() for name, value in sums.items()}
    return scores | {"rmse": np.sqrt(scores["rmse"])}


def _from_step(mixture: GaussianMixture, first: int, last: int | None = None) -> GaussianMixture:
    """Of some steps only."""
    components = Gaussian(mixture.components.mean[:, first:last], mixture.components.cov[:, first:last])
    return GaussianMixture(mixture.log_weight[:, first:last], components)


@torch.no_grad()
def sample_futures(
    model: Model, observed: Tensor, num_ahead: int, paths: int, generator: torch.Generator
) -> NDArray[np.float64]:
    """Sampled positions after the observed ones in metres, (sequence, path, time, 2)."""
    batch = make_batch(observed)
    batch["future_time_feat"] = torch.zeros(len(observed), num_ahead, 1)
    batch["future_season_index"] = torch.zeros(len(observed), num_ahead, 0, dtype=torch.long)
    batch["future_dynamic_real"] = torch.zeros(len(observed), num_ahead, 0)
    batch["known_future"] = torch.full((len(observed), num_ahead, 2), math.nan)
    belief, _ = model.filter(batch)
    return UNIT * model.forecast(belief, batch, paths, generator).double().numpy()
