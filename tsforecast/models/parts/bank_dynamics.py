"""The parameters of a bank: several structures, each under several transformations, and the posterior over them."""

import dataclasses
import math

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.models.bounds import one_of
from tsforecast.models.parts.inference import AbstractDynamics
from tsforecast.models.parts.issm_dynamics import ISSMDynamics
from tsforecast.models.parts.volatility import InverseGamma
from tsforecast.models.records import DataSpec

# Initial values, by which structures that are alike begin to differ: a trend that hardly turns, a level that forgets
# slowly.
_SLOPE, _LEVEL, _DAMPING = -5.0, -1.5, 3.0
_APART = 1.2  # between logarithms of the noises of models that differ in nothing else
_LEAST_SHAPE = 0.0  # logarithm: with a shape of 1 two thirds of the variances lie within a factor of ten


class BankDynamics(AbstractDynamics):
    """Parameters of several structures, each under several transformations, and of the posterior over them.

    Args:
        data: What the model knows of its data.
        structures: Descriptions of sums of components, see `component_names`.
        transformations: Names of transformations.
        scales: "pooled" for the same noises, dampings and priors of all series; "free" for deviations of each.
    """

    def __init__(self, data: DataSpec, structures: list[str], transformations: list[str], scales: str) -> None:
        super().__init__()
        one_of(("pooled", "free"), scales=scales)
        self.is_pooled = self.is_growing = scales == "pooled"
        self.transformations = transformations
        # The transformation is a category of series: its parameters deviate from what all share.
        cardinality = [*data.cardinality, len(transformations)]
        # Pooled, no series has parameters of its own.
        wide = dataclasses.replace(data, num_series=0 if self.is_pooled else data.num_series, cardinality=cardinality)
        repeats = [transformations[:place].count(name) for place, name in enumerate(transformations)]
        self.members = torch.nn.ModuleList([_begun(ISSMDynamics(wide, one), repeats) for one in structures])
        names = [name for member in self.structures for name in member.season_names]
        self.season_names = tuple(dict.fromkeys(names))
        # All models alike at first.
        self.log_prior = torch.nn.Parameter(torch.zeros(len(structures), len(transformations)))
        self.log_power = torch.nn.Parameter(torch.tensor(math.log(0.3)))
        # Ten horizons at first.
        self.log_memory = torch.nn.Parameter(torch.tensor(math.log(10.0 * max(data.prediction_length, 4))))
        self.logit_own = torch.nn.Parameter(torch.tensor(0.0))  # half of each at first
        self.log_volatility_memory = torch.nn.Parameter(self.log_memory.detach().clone())
        # Two thirds of the variances lie within 40 % at first.
        self.log_shape = torch.nn.Parameter(torch.full((len(structures), len(transformations)), math.log(10.0)))

    @property
    def structures(self) -> list[ISSMDynamics]:
        """Return the parameters of each structure; the transformation is the last category of its series."""
        return [member for member in self.members if isinstance(member, ISSMDynamics)]

    def log_weight(
        self, evidence: Float[Tensor, "*batch structure transformation"]
    ) -> Float[Tensor, "*batch structure transformation"]:
        """Return the logarithms of the posterior probabilities, prior times likelihood to a learnt power of at most 1.

        The power says how far the likelihood of one step ahead is to be trusted about models that are all wrong
        (generalised Bayes; Bissiri, Holmes and Walker 2016).
        """
        logits = self.log_prior + self.log_power.clamp(max=0.0).exp() * evidence
        return torch.log_softmax(logits.flatten(-2), -1).view_as(logits)

    def evidence(self, own: Tensor, common: Tensor) -> Tensor:
        """Return the evidence of observations: a learnt mixture of their log-densities under two variances.

        A model with its own variance can fit badly and still look plausible, because it widens. With the shared
        variance it looks wrong, as it should. But so does a good model of a series that is wilder than the others.

        Args:
            own: Log-densities under the variances that each model has found in the series.
            common: Log-densities under the variances of all series.
        """
        return torch.lerp(common, own, torch.sigmoid(self.logit_own))

    def forgetting(self, age: Tensor) -> Tensor:
        """Return the weight of the evidence of an observation that so many others have followed.

        The memory is learnt (dynamic model averaging; Raftery, Karny and Ettler 2010).
        """
        return (-age / self.log_memory.clamp(0.0, 9.0).exp()).exp()  # of one step to 8000

    def volatility(
        self, seen: Float[Tensor, "*#batch"], squares: Float[Tensor, "*batch structure transformation"]
    ) -> InverseGamma:
        """Return the belief over the ratio of the variances of a series to those of all series."""
        shape = self.log_shape.clamp_min(_LEAST_SHAPE).exp()
        return InverseGamma(shape + 0.5 * seen[..., None, None], shape + 0.5 * squares)

    def volatility_discount(self, age: Tensor) -> Tensor:
        """Return the weight in `volatility` of an observation that so many others have followed.

        Without recent observations the belief returns to the prior (Bayesian forgetting; discounted variances, West
        and Harrison 1997, section 10.8).
        """
        return (-age / self._volatility_memory).exp()

    def volatility_persistence(self, ahead: Tensor) -> Tensor:
        """Return the share of a deviation of `volatility` from its prior that remains on average over some steps.

        The factor v - 1 falls by `volatility_discount` in each step. Far ahead, variances are those of all
        series.
        """
        return self._volatility_memory * -torch.expm1(-ahead / self._volatility_memory) / ahead

    @property
    def _volatility_memory(self) -> Tensor:
        return self.log_volatility_memory.clamp(0.0, 9.0).exp()


def _begun(dynamics: ISSMDynamics, repeats: list[int]) -> ISSMDynamics:
    """Return the dynamics with the initial values of their structure.

    Args:
        dynamics: Of a structure.
        repeats: How often each transformation has stood before: its structures move less, more, less still, ..
    """
    structure = dynamics.structure
    assert structure is not None
    noises = structure.noise_names
    damped = [name for name, one in zip(structure.names, structure.components, strict=True) if one.is_damped]
    places = noises + damped  # what the parameters of a series begin with
    with torch.no_grad():
        for name, value in (("trend.level", _LEVEL), ("trend.slope", _SLOPE), ("damped_level", _DAMPING)):
            if name in places:
                dynamics.parameters_of_series.population[places.index(name)] = value
        for place, repeat in enumerate(repeats):  # the last noise is that of observations, which stays
            away = _APART * ((repeat + 1) // 2) * (-1) ** repeat  # the second lower, the third higher, ...
            dynamics.parameters_of_series.categories[-1][place, : len(noises) - 1] += away
    return dynamics
