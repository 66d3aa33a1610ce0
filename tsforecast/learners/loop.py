"""Learners that change their belief over weights by every observation, and the loop that scores them on the way."""

import abc
import functools
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.distributions import Distribution
from torch.utils import _pytree as pytree

from tsforecast.core.gaussian import map_tensors
from tsforecast.core.loop.scan import scan
from tsforecast.core.torch_internals import is_transformed
from tsforecast.learners.likelihoods.predictions import Expectation, Prediction
from tsforecast.learners.shapes import Inputs, Observed, Samples, Scalar, Target, Weights

Belief = TypeVar("Belief")


class AbstractLearner(abc.ABC, Generic[Belief]):
    """A model that learns from a stream: settings are fields, the belief goes in and comes out.

    Points of one step are learnt from together. Beliefs are pytrees of tensors: many learners (streams, seeds) are one
    program, by `run_many` or by `torch.func.vmap` over `step` or `run`. Nobody but the learner reads its belief:
    what others need to know of it are the methods below.
    """

    @abc.abstractmethod
    def init(self) -> Belief:
        """Return the belief before any observation."""

    @abc.abstractmethod
    def drift(self, belief: Belief, dt: Scalar) -> Belief:
        """Return the belief after a time without observations.

        Args:
            belief: Before.
            dt: Time that passed.
        """

    @abc.abstractmethod
    def predict(self, belief: Belief, inputs: Inputs) -> Distribution:
        """Return the distribution of the targets, one event for each point."""

    @abc.abstractmethod
    def expect(self, belief: Belief, inputs: Inputs, spread: bool = True) -> Expectation:
        """Return mean and variance of the targets before they are known.

        Args:
            belief: After what was learnt.
            inputs: As for `update`.
            spread: Whether variances are wanted in full. Without, they may be those of the noise alone, which is
                faster; means are the same.
        """

    @abc.abstractmethod
    def update(
        self,
        belief: Belief,
        inputs: Inputs,
        target: Target,
        observed: Observed | None = None,
        generator: torch.Generator | None = None,
        counts: Float[Tensor, " point"] | None = None,
    ) -> Belief:
        """Return the belief given targets.

        Args:
            belief: Before.
            inputs: Finite.
            target: What stands where nothing is observed has no influence.
            observed: False where a component is missing; None if all are there.
            generator: Of random numbers, where the learner needs some.
            counts: How often each point counts, 0 or more: its likelihood is raised to that power. A point that counts
                twice is the same as two equal points of one step, one that counts 0 is as missing. None for once.
        """

    @abc.abstractmethod
    def forget(self, belief: Belief, rate: float) -> Belief:
        """The belief after a part of all evidence is forgotten at once.

        Args:
            belief: Before.
            rate: The part, between 0 and 1; 1 leaves the prior.

        Raises:
            ValueError: If the rate is outside of its range, or the learner cannot forget.
        """

    @abc.abstractmethod
    def weights(self, belief: Belief) -> Weights:
        """Return the mean of the weights."""

    @abc.abstractmethod
    def variances(self, belief: Belief) -> Weights:
        """The variance of each weight; zeros where the belief is one point."""

    @abc.abstractmethod
    def sample(self, belief: Belief, num_samples: int, generator: torch.Generator | None = None) -> Samples:
        """Return weights drawn from the belief."""

    @abc.abstractmethod
    def step(
        self,
        belief: Belief,
        inputs: Inputs,
        target: Target,
        observed: Observed | None = None,
        dt: Scalar = 1.0,
        generator: torch.Generator | None = None,
    ) -> tuple[Belief, Prediction]:
        """`drift`, `predict`, score, `update`: shared parts are computed once.

        Args:
            belief: After the step before.
            inputs: As for `update`.
            target: As for `update`.
            observed: As for `update`.
            dt: Time since the step before.
            generator: As for `update`.
        """


def run(
    learner: AbstractLearner[Belief],
    belief: Belief,
    inputs: Float[Tensor, "time point *feature"],
    target: Float[Tensor, "time point target"],
    observed: Bool[Tensor, "time point target"] | None = None,
    dt: Float[Tensor, " time"] | None = None,
    generator: torch.Generator | None = None,
    compiled: bool = False,
    unroll: int = 1,
) -> tuple[Belief, Prediction]:
    """Predicts, scores, learns, step after step: prequential evaluation.

    Where gradients are off (`torch.no_grad`) steps take about a third less time.

    Args:
        learner: Settings.
        belief: To begin with; that of an earlier run goes on.
        inputs: Finite.
        target: Of each step.
        observed: False where a component is missing; None if all are there.
        dt: Time before each step; None for one unit.
        generator: Of random numbers, where the learner needs some.
        compiled: Whether to compile the loop, where that is possible: the first call takes seconds, others are many
            times faster for small networks.
        unroll: Steps written out in each round of the compiled loop; see `scan`.

    Returns:
        The last belief, and what was predicted at each step.

    Raises:
        ValueError: If there is no step.
        NotPositiveDefiniteError: If a covariance could not be factorised, naming the step.
    """
    return _fold(_step_of(learner, generator), belief, (inputs, target, observed, dt), compiled, unroll)


def run_many(
    learner: AbstractLearner[Belief],
    beliefs: Belief,
    inputs: Float[Tensor, "time learner point *feature"],
    target: Float[Tensor, "time learner point target"],
    observed: Bool[Tensor, "time learner point target"] | None = None,
    dt: Float[Tensor, "time learner"] | Float[Tensor, " time"] | None = None,
    generator: torch.Generator | None = None,
    compiled: bool = False,
    unroll: int = 1,
) -> tuple[Belief, Prediction]:
    """`run` of many learners with the same settings at once: on streams of their own, from beliefs of their own.

    Compiled, a hundred small networks take about the time of one in an eager loop.

    Args:
        learner: Settings.
        beliefs: Each tensor of a belief with a dimension of learners in front; of one belief for all by
            `map_tensors(lambda x: x.expand(count, *x.shape), belief)`.
        inputs: Finite.
        target: Of each step.
        observed: False where a component is missing; None if all are there.
        dt: Time before each step, of each learner or of all; None for one unit.
        generator: Of random numbers, which differ between learners.
        compiled: As for `run`.
        unroll: As for `run`.

    Returns:
        The last beliefs, the learners in front; and what was predicted, (time, learner, ...).

    Raises:
        ValueError: If there is no step.
        NotPositiveDefiniteError: If a covariance could not be factorised, naming the step.
    """
    own = map_tensors(torch.clone, beliefs)  # those that are expanded, too
    return _fold(_step_of_many(learner, generator), own, (inputs, target, observed, dt), compiled, unroll)


def in_prior_units(learner: AbstractLearner[Belief], belief: Belief) -> tuple[Weights, Weights]:
    """Return the change and the uncertainty of each weight, in standard deviations of the prior.

    A weight whose prior is one point has itself as unit.

    Args:
        learner: Of the belief.
        belief: After what was learnt.

    Returns:
        Changes of the means, and standard deviations.
    """
    prior = learner.init()
    unit = learner.variances(prior).sqrt()
    unit = torch.where(unit > 0, unit, 1.0)
    return (learner.weights(belief) - learner.weights(prior)) / unit, learner.variances(belief).sqrt() / unit


def _fold(
    step: Callable[[Any, Any], Any], belief: Any, xs: tuple[Tensor | None, ...], compiled: bool, unroll: int
) -> Any:
    """Run by `scan`, without a record of each tensor where none is needed."""
    tensors = [leaf for leaf in pytree.tree_leaves((belief, xs)) if isinstance(leaf, Tensor)]
    if compiled or torch.is_grad_enabled() or any(map(is_transformed, tensors)):
        return scan(step, belief, xs, compiled=compiled, unroll=unroll)
    with torch.inference_mode():  # nothing is recorded of each tensor
        result = scan(step, belief, xs)
    return map_tensors(torch.clone, result)  # ordinary tensors again, of which gradients may be taken later


@functools.lru_cache(maxsize=16)
def _step_of(learner: AbstractLearner[Any], generator: torch.Generator | None) -> Callable[[Any, Any], Any]:
    """The step as `scan` takes it; the same object for the same learner, so that it is compiled once."""

    def step(carry: Any, x: Any) -> tuple[Any, Prediction]:
        inputs, target, observed, dt = x
        return learner.step(carry, inputs, target, observed, 1.0 if dt is None else dt, generator)

    return step


@functools.lru_cache(maxsize=16)
def _step_of_many(learner: AbstractLearner[Any], generator: torch.Generator | None) -> Callable[[Any, Any], Any]:
    """Return the step of all learners; tensors without a dimension of learners are shared."""
    step = _step_of(learner, generator)

    def step_of_many(carry: Any, x: Any) -> tuple[Any, Prediction]:
        # A time without a dimension of learners is that of all.
        own = tuple(None if leaf is None or leaf.ndim == 0 else 0 for leaf in x)
        return torch.func.vmap(step, (0, own), randomness="different")(carry, x)

    return step_of_many
