"""What independent weights lose where the likelihood does not tell some weights from others: the invariance gap.

Let q be the prior times a Gaussian g with independent weights, and q_mix the prior times the average of g over all
transformations that leave the likelihood as it is. If the prior is invariant too, both fit the data equally well, and
the evidence lower bound of q is less by the gap KL[q || q_mix] (Kurle et al., *On the Detrimental Effect of Invariances
in the Likelihood for Variational Inference*, 2022).
"""

import dataclasses
import math

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.core.gaussian import Gaussian
from tsforecast.learners.beliefs.diagonal import Independent


@dataclasses.dataclass(frozen=True)
class OverParametrised:
    """N equal observations of a mean of K weights: y = 1' w / K + noise, with the prior N(0, K prior_variance I).

    Only the mean of the weights has an influence: all shifts whose sum is 0 are invariances. Functions have the same
    prior and posterior for every K.

    Attributes:
        weights: K.
        observations: N.
        target: y of all observations.
        noise: Variance of an observation.
        prior_variance: Of the mean of the weights.
    """

    weights: int
    observations: int = 10
    target: float = 1.0
    noise: float = 1.0
    prior_variance: float = 1.0

    def prior(self) -> Independent:
        """Return the prior of the weights."""
        zeros = torch.zeros(self.weights, dtype=torch.float64)
        return Independent(zeros, zeros + self.weights * self.prior_variance)

    def posterior(self) -> Gaussian:
        """Return the exact posterior."""
        return abiding(self.abiding_optimum(), self.prior())

    def abiding_optimum(self) -> Independent:
        """Return the Gaussian g by which q_mix is best, which makes it the posterior: mean y, variance K noise / N."""
        zeros = self.prior().mean
        return Independent(zeros + self.target, zeros + self.weights * self.noise / self.observations)

    def mean_field_optimum(self) -> Independent:
        """Return the g by which q is best: variance K^2 noise / N, and the mean that leaves q the posterior's."""
        zeros, shrunk = self.prior().mean, self.noise / self.observations
        grown = (self.prior_variance + self.weights * shrunk) / (self.prior_variance + shrunk)
        return Independent(zeros + self.target * grown, zeros + self.weights**2 * shrunk)

    def fit(self, belief: Gaussian) -> Float[Tensor, ""]:
        """Return the expected log-likelihood of all observations."""
        ones = torch.ones(self.weights, dtype=torch.float64) / self.weights
        square = (self.target - ones @ belief.mean).square() + ones @ belief.cov @ ones
        return -0.5 * self.observations * (square / self.noise + math.log(2 * math.pi * self.noise))

    def bound(self, belief: Gaussian) -> Float[Tensor, ""]:
        """Return the evidence lower bound."""
        return self.fit(belief) - belief.kl(dense(self.prior()))

    def most_divergence(self) -> float:
        """Return what no optimum's divergence from the prior exceeds: sum_n (Var_p f + y^2) / (2 noise)."""
        return self.observations * (self.prior_variance + self.target**2) / (2 * self.noise)


def mean_field(likelihood: Independent, prior: Independent) -> Independent:
    """Return q: prior times a Gaussian function with independent weights."""
    precision = 1 / prior.variance + 1 / likelihood.variance
    linear = prior.mean / prior.variance + likelihood.mean / likelihood.variance
    return Independent(linear / precision, 1 / precision)


def abiding(likelihood: Independent, prior: Independent, inputs: Float[Tensor, " weight"] | None = None) -> Gaussian:
    """Return q_mix: prior times the function averaged over all shifts d with x' d = 0 (equations 15 and 23).

    Mean mu + S x x' (m - mu) / (x' (V + S) x) and covariance S - S x x' S / (x' (V + S) x), for a prior N(mu, S) and a
    function of mean m and variances V.

    Args:
        likelihood: The function.
        prior: Of the weights.
        inputs: x; None for ones.
    """
    x = torch.ones_like(prior.mean) if inputs is None else inputs
    along = prior.variance * x
    total = x @ ((likelihood.variance + prior.variance) * x)
    mean = prior.mean + along * (x @ (likelihood.mean - prior.mean)) / total
    return Gaussian(mean, torch.diag(prior.variance) - torch.outer(along, along) / total)


def equal_gap(weights: int, prior_variance: float, variance: float) -> float:
    """Return the gap where all variances are equal: (K - 1) / 2 [ln((s + l) / l) + l / (s + l) - 1] (equation 16).

    Args:
        weights: K.
        prior_variance: s.
        variance: l, of the function that stands for the likelihood.
    """
    ratio = (prior_variance + variance) / variance
    return 0.5 * (weights - 1) * (math.log(ratio) + 1 / ratio - 1)


def dense(belief: Independent) -> Gaussian:
    """Return the belief with its covariance matrix."""
    return Gaussian(belief.mean, torch.diag(belief.variance))


def log_permanent(log_matrix: Float[Tensor, "*batch unit unit"]) -> Float[Tensor, "*batch"]:
    """Return log sum over permutations P of the product of exp(log_matrix[j, P(j)]): exact, in 2^n n steps.

    Subsets are filled row by row; nothing is subtracted, so that nothing cancels.

    Raises:
        ValueError: If there are more than 22 units, for which memory would not do.
    """
    count = log_matrix.shape[-1]
    if count > 22:
        raise ValueError(f"expected at most 22 units, got {count}")
    subsets = torch.arange(1 << count)
    sizes = sum((subsets >> k) & 1 for k in range(count))
    assert isinstance(sizes, Tensor)
    table = log_matrix.new_full((*log_matrix.shape[:-2], 1 << count), -math.inf)
    table[..., 0] = 0.0
    for row in range(count):
        chosen = subsets[sizes == row + 1]
        terms = []
        for column in range(count):
            inside = ((chosen >> column) & 1).bool()
            before = table[..., chosen & ~(1 << column)] + log_matrix[..., row, column, None]
            terms.append(torch.where(inside, before, -math.inf))
        table[..., chosen] = torch.stack(terms).logsumexp(0)
    return table[..., -1]


def permutation_gaps(units: Independent, count: int, draws: Float[Tensor, "draw weight"]) -> Float[Tensor, " draw"]:
    """Return log q(w) - log q_mix(w) at draws from q, whose mean is the gap by the order of hidden units.

    A network computes the same whichever order the units of a layer have. q_mix is q averaged over all orders; the gap
    lies between 0, where all units have the same belief, and log n!, where no two can be taken for each other.

    Args:
        units: Belief over the weights of a layer's units, unit by unit: those that enter it and those that leave it.
        count: Number of units n.
        draws: Weights from it, in the same order.
    """
    mean, variance, weights = (x.unflatten(-1, (count, -1)) for x in (units.mean, units.variance, draws))
    apart = (weights.unsqueeze(-2) - mean).square() / variance + variance.log()
    log_density = -0.5 * (apart + math.log(2 * math.pi)).sum(-1)  # (draw, unit whose weights, unit whose belief)
    own = log_density.diagonal(dim1=-2, dim2=-1).sum(-1)
    return own - log_permanent(log_density) + math.lgamma(count + 1)


def by_unit(values: Float[Tensor, "*batch weight"], widths: tuple[int, int, int]) -> Float[Tensor, "*batch own"]:
    """Return the weights of a network of one hidden layer, with biases, unit by unit; biases of outputs are left out.

    Args:
        values: In the order of `as_network`.
        widths: Of inputs, hidden layer and outputs.
    """
    inputs, hidden, outputs = widths
    sizes = [inputs * hidden, hidden, hidden * outputs, outputs]
    entering, bias, leaving, _ = values.split(sizes, -1)
    parts = (entering.unflatten(-1, (hidden, inputs)), bias.unsqueeze(-1), leaving.unflatten(-1, (outputs, hidden)).mT)
    return torch.cat(parts, -1).flatten(-2)
