"""Variational auto-encoders of several sources (Kurle et al. 2018): bounds by single, mixed and multiplied beliefs."""

import math
from collections.abc import Callable, Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from tsforecast.core.linalg import LOG_2PI
from tsforecast.core.torch_internals import normal

BOUNDS = ("ind", "moe", "poe", "hybrid")


def evidence_bound(
    kind: str,
    mean: Float[Tensor, "source batch latent"],
    variance: Float[Tensor, "source batch latent"],
    log_joint: Callable[[Tensor], Tensor],
    observed: Bool[Tensor, "source batch"] | None = None,
    num_samples: int = 1,
    generator: torch.Generator | None = None,
) -> Float[Tensor, " batch"]:
    """Return an importance-weighted lower bound of log p(x) in nats (Burda et al. 2016), by beliefs of single sources.

    - "ind": each source proposes z by its own belief, and weighs it by that; the mean over sources.
    - "moe": the same, weighed by the mixture of all beliefs.
    - "poe": z comes from the product of experts, prod_m q_m(z) / p(z)^(M-1), with p(z) = N(0, I).
    - "hybrid": the mean of "ind" and "poe", which keeps the single beliefs apart.

    Args:
        kind: Of the bound.
        mean: Of each source's belief.
        variance: Of each source's belief, below 1: none is less sure than the prior.
        log_joint: log p(x, z) of samples (sample, batch, latent), for what is observed of x.
        observed: False where a source is missing: it then proposes nothing; None if all are there.
        num_samples: K of the bound.
        generator: Of random numbers.

    Raises:
        ValueError: If the bound is unknown, there is no sample, or all sources of a point are missing.
    """
    if kind not in BOUNDS:
        raise ValueError(f"expected a bound of {', '.join(BOUNDS)}, got {kind!r}")
    if num_samples < 1:
        raise ValueError(f"expected one sample or more, got {num_samples}")
    seen = torch.ones_like(mean[..., 0], dtype=torch.bool) if observed is None else observed
    if not bool(seen.any(0).all()):
        raise ValueError("expected one source or more of each point, got one of which all are missing")
    if kind == "hybrid":
        rest = (mean, variance, log_joint, observed, num_samples, generator)
        return 0.5 * (evidence_bound("ind", *rest) + evidence_bound("poe", *rest))
    if kind == "poe":
        mean, variance = product(mean, variance, seen)
        return _weighed(mean, variance, log_joint, lambda z: _log_normal(z, mean, variance), num_samples, generator)
    share = seen / seen.sum(0)

    def mixture(z: Tensor) -> Tensor:
        each = torch.stack([_log_normal(z, m, v) for m, v in zip(mean, variance, strict=True)])
        return (each + share.log().unsqueeze(1)).logsumexp(0)

    total = torch.zeros_like(mean[0, :, 0])
    for m, (own_mean, own_variance) in enumerate(zip(mean, variance, strict=True)):

        def own(z: Tensor, a: Tensor = own_mean, b: Tensor = own_variance) -> Tensor:
            return _log_normal(z, a, b)

        proposal = mixture if kind == "moe" else own
        bound = _weighed(own_mean, own_variance, log_joint, proposal, num_samples, generator)
        total = total + torch.where(seen[m], share[m] * bound, 0.0)
    return total


def product(
    mean: Float[Tensor, "source batch latent"],
    variance: Float[Tensor, "source batch latent"],
    observed: Bool[Tensor, "source batch"],
) -> tuple[Float[Tensor, "batch latent"], Float[Tensor, "batch latent"]]:
    """Return mean and variance of the product of experts, whose prior is N(0, I); missing sources say nothing."""
    seen = observed.unsqueeze(-1)
    precision = 1 + torch.where(seen, 1 / variance - 1, 0.0).sum(0)
    linear = torch.where(seen, mean / variance, 0.0).sum(0)
    return linear / precision, 1 / precision


def _weighed(
    mean: Tensor,
    variance: Tensor,
    log_joint: Callable[[Tensor], Tensor],
    log_proposal: Callable[[Tensor], Tensor],
    num_samples: int,
    generator: torch.Generator | None,
) -> Tensor:
    """Return log 1/K sum_k p(x, z_k) / q(z_k) for z_k ~ N(mean, variance)."""
    shape = (num_samples, *mean.shape)
    z = mean + variance.sqrt() * normal(shape, mean, generator)
    return (log_joint(z) - log_proposal(z)).logsumexp(0) - math.log(num_samples)


def _log_normal(z: Tensor, mean: Tensor | float, variance: Tensor) -> Tensor:
    return -0.5 * ((z - mean).square() / variance + variance.log() + LOG_2PI).sum(-1)


class MultiSourceVAE(nn.Module):
    """An encoder and a decoder for each source, which share the state z ~ N(0, I); it runs where its parameters are.

    Args:
        sizes: Of each source.
        latent: Size of z.
        hidden: Width of two hidden layers of each network.
        binary: Whether what is modelled is 0 or 1, or between; else it is Gaussian, with one learnt variance a part.
        modelled: Sizes of what is modelled in place of the sources, which then only tell of z; None for the sources.
        activation: Of the hidden layers.

    Raises:
        ValueError: If there is no source or nothing is modelled, or a size is below 1.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        latent: int,
        hidden: int = 200,
        binary: bool = True,
        modelled: Sequence[int] | None = None,
        activation: type[nn.Module] = nn.ReLU,
    ) -> None:
        super().__init__()
        parts = sizes if modelled is None else modelled
        if not sizes or not parts or min(*sizes, *parts, latent, hidden) < 1:
            raise ValueError(
                f"expected one source or more and positive sizes, got {sizes}, {parts}, {latent} and {hidden}"
            )
        self.binary = binary
        self.models_sources = modelled is None
        self.encoders = nn.ModuleList([_network(size, hidden, 2 * latent, activation) for size in sizes])
        self.decoders = nn.ModuleList([_network(latent, hidden, size, activation) for size in parts])
        self.log_noise = nn.Parameter(torch.zeros(len(parts)))

    def beliefs(
        self, sources: Sequence[Float[Tensor, "batch _"]], observed: Bool[Tensor, "source batch"] | None = None
    ) -> tuple[Float[Tensor, "source batch latent"], Float[Tensor, "source batch latent"]]:
        """Return mean and variance of what each source believes of z; of one that is missing, the prior's.

        Args:
            sources: One after the other; what stands where a source is missing is not read.
            observed: False where a source is missing.
        """
        found = []
        for m, (encoder, x) in enumerate(zip(self.encoders, sources, strict=True)):
            known = x if observed is None else torch.where(observed[m].unsqueeze(-1), x, 0.0)
            found.append(encoder(known))
        mean, raw = torch.stack(found).chunk(2, -1)
        variance = raw.sigmoid()  # surer than the prior, so that every product is a Gaussian
        if observed is None:
            return mean, variance
        seen = observed.unsqueeze(-1)
        return torch.where(seen, mean, 0.0), torch.where(seen, variance, 1.0)

    def log_joint(
        self,
        z: Float[Tensor, "sample batch latent"],
        parts: Sequence[Float[Tensor, "batch _"]],
        observed: Bool[Tensor, "part batch"] | None = None,
    ) -> Float[Tensor, "sample batch"]:
        """Return log p(x, z) for the parts x that are observed: the sources, or what is modelled in their place."""
        total = _log_normal(z, 0.0, torch.ones_like(z))
        for m, (decoder, x) in enumerate(zip(self.decoders, parts, strict=True)):
            known = x if observed is None else torch.where(observed[m].unsqueeze(-1), x, 0.0)
            outputs = decoder(z)
            if self.binary:
                told = (known * outputs - nn.functional.softplus(outputs)).sum(-1)
            else:
                told = _log_normal(known, outputs, self.log_noise[m].exp().expand_as(outputs))
            total = total + (told if observed is None else torch.where(observed[m], told, 0.0))
        return total

    def bound(
        self,
        kind: str,
        sources: Sequence[Float[Tensor, "batch _"]],
        observed: Bool[Tensor, "source batch"] | None = None,
        num_samples: int = 1,
        generator: torch.Generator | None = None,
        modelled: Sequence[Float[Tensor, "batch _"]] | None = None,
    ) -> Float[Tensor, " batch"]:
        """Return a lower bound of log p(x), to be raised in training; see `evidence_bound`.

        Args:
            kind: Of the bound.
            sources: One after the other.
            observed: False where a source is missing.
            num_samples: K of the bound.
            generator: Of random numbers.
            modelled: What is modelled in place of the sources, all of it observed; None if that are the sources.

        Raises:
            ValueError: If what is modelled is given where sources are, or lacks where others are.
        """
        if self.models_sources != (modelled is None):
            wanted = "the sources alone" if self.models_sources else "what is modelled beside the sources"
            raise ValueError(f"expected {wanted}, as the model was made")
        mean, variance = self.beliefs(sources, observed)
        parts, seen = (sources, observed) if modelled is None else (modelled, None)
        return evidence_bound(
            kind, mean, variance, lambda z: self.log_joint(z, parts, seen), observed, num_samples, generator
        )


def _network(inputs: int, hidden: int, outputs: int, activation: type[nn.Module]) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inputs, hidden), activation(), nn.Linear(hidden, hidden), activation(), nn.Linear(hidden, outputs)
    )
