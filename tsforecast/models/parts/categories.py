"""Categories of a switch: their beginning at autoregressions that EM finds, and their likelihood by Kim's filter."""

import dataclasses

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.core.particles.categorical import CategoricalSwitching
from tsforecast.core.regimes import collapse
from tsforecast.core.regimes.chain import stationary
from tsforecast.core.regimes.em import SwitchingRegression
from tsforecast.models.parts.log_scales import LARGEST_LOG_SCALE
from tsforecast.models.parts.markov_fit import Kind, fit, lags_of, ordered, regression
from tsforecast.models.parts.monte_carlo import ParticleInference
from tsforecast.models.parts.objectives import negative_log_likelihood
from tsforecast.models.parts.switching_bases import SwitchingBases
from tsforecast.models.parts.units import scaled
from tsforecast.models.records import Batch, Series

_EMITTED = 0.1  # scale of the noise of the emission, by that of the calmest regime
_LEAST = 1e-3  # probability to go from regime to regime


@dataclasses.dataclass(frozen=True)
class RegimeStart:
    """Sets the parameters of a dense system from its first batch, once. Its state then holds the last values.

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
        if bool(dynamics.is_begun) or not self.starts or dynamics.issm is not None or states < targets:
            return
        dynamics.is_begun.fill_(True)
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
        spread = level.std(0, correction=0).clamp_min(1e-6).log().repeat(len(lags))
        dynamics.prior_log_inverse_scale[: targets * len(lags)] = -spread.to(dynamics.prior_mean)


def adopt(dynamics: SwitchingBases, model: SwitchingRegression) -> None:
    """Write autoregressions into the parameters: the newest values are the first states, older ones follow.

    Args:
        dynamics: Of categories, without components.
        model: Their regressors are 1, and the lags of all targets, the newest first.
    """
    bases, like = dynamics.mixture.bases, dynamics.mixture.bases["transition"]
    targets = model.coefficient.shape[-1]
    used = model.coefficient.shape[1] - 1
    coefficient, deviation = model.coefficient.mT.to(like), model.cov.diagonal(dim1=-2, dim2=-1).sqrt().to(like)
    matrix = torch.zeros_like(like)
    matrix[:, targets:used, : used - targets] = torch.eye(used - targets)
    matrix[:, :targets, :used] = coefficient[..., 1:]
    bases["transition"].copy_(matrix)
    bases["offset"].zero_()[:, :targets] = coefficient[..., 0]
    noise = torch.full_like(bases["state_noise"], LARGEST_LOG_SCALE - 0.5)
    noise[:, :targets] = -deviation.log()
    bases["state_noise"].copy_(noise.clamp(-LARGEST_LOG_SCALE + 0.5, LARGEST_LOG_SCALE - 0.5))
    read = torch.zeros_like(bases["emission"])
    read[:, :, :targets] = torch.eye(targets)
    bases["emission"].copy_(read)
    emitted = -(_EMITTED * deviation.amin(0)).log()
    bases["emission_noise"].copy_(emitted.clamp_max(LARGEST_LOG_SCALE - 0.5).expand_as(bases["emission_noise"]))
    dynamics.emission_inputs.zero_()
    chain = dynamics.dynamics
    assert chain.stay is not None
    chain.stay.copy_(torch.log_softmax(model.log_transition, -1).exp().clamp_min(_LEAST).log())
    chain.head.weight.zero_()
    chain.head.bias.zero_()
    chain.first.weight.zero_()
    chain.first.bias.copy_(stationary(model.log_transition))


def collapsed_loss(inference: ParticleInference, batch: Batch) -> Float[Tensor, " series"]:
    """Return the negative log-likelihood per observed value by Kim's filter, see `core.regimes.collapse`."""
    time_slice, units = inference.slice_of(batch, "both"), inference.scale_of(batch)
    system, prior = inference.dynamics.switching(time_slice, Series.of(batch), *units, proposing=False)
    assert isinstance(system, CategoricalSwitching)
    filtered = collapse.filter(system, collapse.begin(system, prior), *scaled(time_slice, *units))
    return negative_log_likelihood(filtered.log_likelihood, time_slice.observed)
