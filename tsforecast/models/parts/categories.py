"""Categories of a switch: their beginning at autoregressions that EM finds."""

import dataclasses

import torch

from tsforecast.core.regimes.chain import stationary
from tsforecast.core.regimes.em import SwitchingRegression
from tsforecast.models.bounds import at_least, one_of
from tsforecast.models.parts.log_scales import LARGEST_LOG_SCALE
from tsforecast.models.parts.markov_fit import Kind, fit, lags_of, ordered, regression
from tsforecast.models.parts.monte_carlo import ParticleInference
from tsforecast.models.parts.optimisation import AuxiliaryTraining, DenseTraining, SwitchingTraining
from tsforecast.models.parts.switching_bases import SwitchingBases
from tsforecast.models.parts.units import scaled
from tsforecast.models.records import Batch

_EMITTED = 0.1  # scale of the noise of the emission, by that of the calmest regime
_STILL = -2.0  # logarithm of the scales of noises of components by that
_LEAST_OF_PRIOR = 1e-3  # scale of the noise of the observation by that of the prior: float32 has seven digits
_LEAST = 1e-3  # probability to go from regime to regime


@dataclasses.dataclass(frozen=True)
class RegimeStart:
    """Sets the parameters of a dense system from its first batch, once. Its state then holds the last values.

    Components beside it have hardly any noise at first, and the observation has little.

    Attributes:
        starts: Number of runs of EM, each from other regimes; 0 for none.
        seed: Seed of those that are random.
    """

    starts: int
    seed: int

    @torch.no_grad()
    def __call__(self, inference: ParticleInference, batch: Batch) -> None:
        """Set parameters to the most likely ones that were found; those of a trained model stay.

        Args:
            inference: Inference in a model of categories.
            batch: Windows of the training data.
        """
        dynamics = inference.dynamics
        assert isinstance(dynamics, SwitchingBases)
        targets, states = dynamics.emits.emitted_dim, dynamics.bases.state_dim
        if bool(dynamics.is_begun) or not self.starts or states < targets:  # a state must hold the last values
            return
        dynamics.is_begun.fill_(True)  # also without any value: a second batch must not overwrite what was learnt
        time_slice, units = inference.slice_of(batch, "both"), inference.scale_of(batch)
        values, seen = scaled(time_slice, *units)
        seen = time_slice.observed if seen is None else seen
        values, seen = values.double().cpu(), seen.cpu()
        lags = lags_of(states // targets, 0)
        data = regression(values, seen, lags, values.new_zeros(*values.shape[:2], 0))
        if not bool(data.seen.any()):
            return
        kind = Kind(dynamics.switch_dim)
        model = ordered(fit(data, kind, self.starts, self.seed).model, by_noise=True)
        adopt(dynamics, model)
        level = values[seen.all(-1)]
        dynamics.prior_mean[: targets * len(lags)] = level.mean(0).repeat(len(lags)).to(dynamics.prior_mean)
        spread = level.std(0, correction=0).clamp_min(1e-6)  # a constant series has no spread
        known = spread.log().repeat(len(lags)).to(dynamics.prior_mean)
        dynamics.prior_log_inverse_scale[: targets * len(lags)] = -known
        if dynamics.issm is not None:
            factors, scales = dynamics.mixture.bases["factor"].zero_(), dynamics.issm.parameters_of_series.population
            calmest = model.cov.diagonal(dim1=-2, dim2=-1).amin(0).sqrt()
            observed = torch.maximum(_EMITTED * calmest, _LEAST_OF_PRIOR * spread).log()
            scales[: factors.shape[-1]] = observed + _STILL
            scales[factors.shape[-1] - 1] = observed


def adopt(dynamics: SwitchingBases, model: SwitchingRegression) -> None:
    """Write autoregressions into the parameters: the newest values are the first states, older ones follow.

    Args:
        dynamics: Of categories.
        model: Their regressors are 1, and the lags of all targets, the newest first.
    """
    bases, like = dynamics.mixture.bases, dynamics.mixture.bases["transition"]
    targets = model.coefficient.shape[-1]
    used = model.coefficient.shape[1] - 1
    coefficient, deviation = model.coefficient.mT.to(like), model.cov.diagonal(dim1=-2, dim2=-1).sqrt().to(like)
    matrix = torch.zeros_like(like)
    matrix[:, targets:used, : used - targets] = torch.eye(used - targets)  # older values move on by one place
    matrix[:, :targets, :used] = coefficient[..., 1:]
    bases["transition"].copy_(matrix)
    bases["offset"].zero_()[:, :targets] = coefficient[..., 0]
    # Inside of its bounds, at which no gradient passes.
    noise = torch.full_like(bases["state_noise"], LARGEST_LOG_SCALE - 0.5)
    noise[:, :targets] = -deviation.log()
    bases["state_noise"].copy_(noise.clamp(-LARGEST_LOG_SCALE + 0.5, LARGEST_LOG_SCALE - 0.5))
    read = torch.zeros_like(bases["emission"])
    read[:, :, :targets] = torch.eye(targets)
    bases["emission"].copy_(read)
    if "emission_noise" in bases:
        emitted = -(_EMITTED * deviation.amin(0)).log()
        bases["emission_noise"].copy_(emitted.clamp_max(LARGEST_LOG_SCALE - 0.5).expand_as(bases["emission_noise"]))
    dynamics.emission_inputs.zero_()
    chain = dynamics.dynamics
    assert chain.stay is not None
    chain.stay.copy_(torch.log_softmax(model.log_transition, -1).exp().clamp_min(_LEAST).log())
    chain.head.weight.zero_()  # the network adds to the chain that was found
    chain.head.bias.zero_()
    chain.first.weight.zero_()
    chain.first.bias.copy_(stationary(model.log_transition))


def begin_of(
    switch: str, starts: int, training: DenseTraining | SwitchingTraining | AuxiliaryTraining
) -> RegimeStart | None:
    """Return the beginning of a model whose switch is "categorical"; None for one that is "gaussian".

    Args:
        switch: One of these.
        starts: See `RegimeStart`.
        training: How the model is trained.

    Raises:
        ValueError: If an option is not known or out of its range, or the objective does not go with categories.
    """
    one_of(("gaussian", "categorical"), switch=switch)
    at_least(0, starts=starts)
    if switch == "gaussian":
        return None
    if training.objective == "crps":  # which category is drawn has no derivative
        raise ValueError("the CRPS of paths teaches nothing about categorical switches: take objective 'likelihood'")
    return RegimeStart(starts, training.seed or 0)
