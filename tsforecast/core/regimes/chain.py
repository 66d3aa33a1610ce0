"""Exact inference in a finite chain of regimes; observations may depend on several regimes back.

Everything is in logarithms, batched over series, and differentiable. A *history* is the tuple (s_t, ..., s_{t-n}) of
the newest n + 1 of K regimes, a *memory* is (s_t, ..., s_{t-n+1}), with n at least 1. Both are numbered as digits to
the base K, the newest regime first. So a filter holds K^n probabilities for each series, and a step looks at K^{n+1}.
With n = 1 histories are pairs, and this is the hidden Markov model. As everywhere in the core, the belief before the
first step is one about the regime before it: the first step moves it, and then observes.
"""

import dataclasses

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tsforecast.core.gaussian import register_record
from tsforecast.core.loop.scan import scan
from tsforecast.core.particles.resampling import draw_index
from tsforecast.core.torch_internals import is_transformed


@register_record
@dataclasses.dataclass(frozen=True)
class RegimeFiltered:
    """Beliefs about the regimes at every step, given the observations until then.

    Attributes:
        histories: log p(s_t, ..., s_{t-n} | y_1, ..., y_t).
        log_likelihood: log p(y_t | y_1, ..., y_{t-1}).
        belief: log p(s_T, ..., s_{T-n+1} | y_1, ..., y_T): with it the next slice of time begins.
    """

    histories: Float[Tensor, "time series history"]
    log_likelihood: Float[Tensor, "time series"]
    belief: Float[Tensor, "series memory"]

    @property
    def probabilities(self) -> Float[Tensor, "time series regime"]:
        """Return p(s_t | y_1, ..., y_t)."""
        return of_newest(self.histories.exp(), self.histories.shape[-1] // self.belief.shape[-1])


@register_record
@dataclasses.dataclass(frozen=True)
class RegimeSmoothed:
    """Beliefs about the regimes at every step, given all observations.

    Attributes:
        histories: p(s_t, ..., s_{t-n} | y_1, ..., y_T).
        pairs: p(s_{t-1} = i, s_t = j | y_1, ..., y_T), the earlier regime first.
        log_likelihood: log p(y_t | y_1, ..., y_{t-1}).
    """

    histories: Float[Tensor, "time series history"]
    pairs: Float[Tensor, "time series before regime"]
    log_likelihood: Float[Tensor, "time series"]

    @property
    def probabilities(self) -> Float[Tensor, "time series regime"]:
        """Return p(s_t | y_1, ..., y_T)."""
        return self.pairs.sum(-2)


def of_newest(values: Float[Tensor, "*batch history"], regimes: int) -> Float[Tensor, "*batch regime"]:
    """Return sums over histories, or memories, of each newest regime."""
    return values.unflatten(-1, (regimes, -1)).sum(-1)


def stationary(log_transition: Float[Tensor, "*batch regime regime"]) -> Float[Tensor, "*batch regime"]:
    """Return log pi with pi = pi P, the share of time that the chain spends in each regime in the long run.

    Args:
        log_transition: log p(s_t = j | s_{t-1} = i) in row i and column j.

    Raises:
        ValueError: If there is no such distribution, or more than one: some regimes are never left, or never meet.
    """
    transition = log_transition.exp()
    regimes = transition.shape[-1]
    eye = torch.eye(regimes, dtype=transition.dtype, device=transition.device)
    balance = (eye - transition).mT
    # The sum of its rows is zero, so one gives way to the condition that probabilities sum to one.
    system = torch.cat([balance[..., :-1, :], torch.ones_like(balance[..., :1, :])], -2)
    solved, info = torch.linalg.solve_ex(system, eye[:, -1:].expand(*system.shape[:-1], 1))
    probabilities = solved.squeeze(-1)
    if not is_transformed(probabilities) and (bool(info.any()) or not bool(probabilities.isfinite().all())):
        raise ValueError("expected a chain with one stationary distribution, got one whose regimes do not all meet")
    return probabilities.clamp_min(torch.finfo(probabilities.dtype).tiny).log()


def begin(
    initial: Float[Tensor, "#series regime"], log_transition: Float[Tensor, "#series regime regime"], length: int = 1
) -> Float[Tensor, "series memory"]:
    """Return the belief about the `length` regimes before the first step.

    Args:
        initial: log p of the oldest of them.
        log_transition: log p(s_t | s_{t-1}) between them.
        length: At least 1.
    """
    belief = initial.expand(max(len(initial), len(log_transition)), -1)
    regimes = initial.shape[-1]
    for _ in range(length - 1):
        moved = log_transition.mT.unsqueeze(-1) + belief.unflatten(-1, (1, regimes, -1))
        belief = moved.flatten(1)
    return belief


def filter(
    log_transition: Float[Tensor, "time_or_1 #series regime regime"],
    log_density: Float[Tensor, "time series history"],
    belief: Float[Tensor, "series memory"],
    active: Bool[Tensor, "time series"] | None = None,
) -> RegimeFiltered:
    """Return the beliefs about the regimes at every step: the filter of Hamilton (1989), exact.

    Args:
        log_transition: log p(s_t = j | s_{t-1} = i) in row i and column j, of each step or of all.
        log_density: log p(y_t | s_t, ..., s_{t-n}, y_1, ..., y_{t-1}); 0 where nothing is observed.
        belief: Before the first step, from `begin` or from where an earlier filter stopped.
        active: False where a series has not begun: its belief stands still. None if all have.

    Raises:
        ValueError: If sizes do not fit: K regimes have K^n memories and K^{n+1} histories.
    """
    _check(log_transition, log_density, belief)

    def step(belief: Tensor, x: tuple) -> tuple[Tensor, tuple]:
        transition, density, mask = x
        joint = _predicted(transition, belief) + density
        gain = torch.logsumexp(joint, -1)
        joint = joint - gain.unsqueeze(-1)
        after = torch.logsumexp(joint.unflatten(-1, (belief.shape[-1], -1)), -1)
        if mask is not None:
            after, gain = torch.where(mask.unsqueeze(-1), after, belief), torch.where(mask, gain, 0.0)
        return after, (joint, gain)

    belief, (histories, gains) = scan(step, belief, (_every(log_transition, log_density), log_density, active))
    return RegimeFiltered(histories, gains, belief)


def smooth(
    log_transition: Float[Tensor, "time_or_1 #series regime regime"],
    log_density: Float[Tensor, "time series history"],
    belief: Float[Tensor, "series memory"],
    active: Bool[Tensor, "time series"] | None = None,
) -> RegimeSmoothed:
    """Return the beliefs about the regimes given all observations: forward and backward, exact.

    Backwards, b(memory at t) = log p(y_{t+1}, ..., y_T | s_t, ..., s_{t-n+1}, y_1, ..., y_t). With densities of one
    history each it is the smoother of Kim (1994), who gives it for pairs.

    Args:
        log_transition: See `filter`.
        log_density: See `filter`.
        belief: See `filter`.
        active: See `filter`; what is found before a series begins means nothing.

    Raises:
        ValueError: See `filter`.
    """
    filtered = filter(log_transition, log_density, belief, active)
    regimes, memories = log_transition.shape[-1], belief.shape[-1]

    def step(later: Tensor, x: tuple) -> tuple[Tensor, Tensor]:
        transition, density, mask, joint, gain = x
        ahead = later.unsqueeze(-1).expand(*later.shape, regimes).flatten(-2)
        smoothed = torch.softmax(joint + ahead, -1)  # normalised at each step: rounding does not add up
        moved = (density + ahead).unflatten(-1, (regimes, regimes, -1)) + transition.mT.unsqueeze(-1)
        before = torch.logsumexp(moved, -3).flatten(-2) - gain.unsqueeze(-1)
        return (before if mask is None else torch.where(mask.unsqueeze(-1), before, later)), smoothed

    every = _every(log_transition, log_density)
    xs = (every, log_density, active, filtered.histories, filtered.log_likelihood)
    nothing = torch.zeros_like(filtered.belief)  # log 1: nothing comes after the last step
    _, histories = scan(step, nothing, xs, reverse=True)
    pairs = histories.unflatten(-1, (regimes, regimes, memories // regimes)).sum(-1).mT
    return RegimeSmoothed(histories, pairs, filtered.log_likelihood)


def most_likely(
    log_transition: Float[Tensor, "time_or_1 #series regime regime"],
    log_density: Float[Tensor, "time series history"],
    belief: Float[Tensor, "series memory"],
    active: Bool[Tensor, "time series"] | None = None,
) -> tuple[Int[Tensor, "time series"], Float[Tensor, " series"]]:
    """Return the path of regimes that is most likely as a whole, and its log p(path, y_1, ..., y_T) (Viterbi 1967).

    The regimes before the first step belong to the path, and are not returned.

    Args:
        log_transition: See `filter`.
        log_density: See `filter`.
        belief: See `filter`.
        active: See `filter`.

    Raises:
        ValueError: See `filter`.
    """
    _check(log_transition, log_density, belief)
    regimes, memories = log_transition.shape[-1], belief.shape[-1]

    def step(best: Tensor, x: tuple) -> tuple[Tensor, Tensor]:
        transition, density, mask = x
        joint = _predicted(transition, best) + density
        after, oldest = joint.unflatten(-1, (memories, regimes)).max(-1)
        return (after if mask is None else torch.where(mask.unsqueeze(-1), after, best)), oldest

    every = _every(log_transition, log_density)
    best, oldest = scan(step, belief, (every, log_density, active))
    value, memory = best.max(-1)
    path = []
    for time in reversed(range(len(log_density))):
        path.append(memory // (memories // regimes))
        # Drops the newest digit of a memory, and appends the oldest regime.
        before = memory % (memories // regimes) * regimes + oldest[time].gather(-1, memory.unsqueeze(-1)).squeeze(-1)
        memory = before if active is None else torch.where(active[time], before, memory)
    return torch.stack(path[::-1]), value


def ahead(
    log_transition: Float[Tensor, "time #series regime regime"], belief: Float[Tensor, "series memory"]
) -> Float[Tensor, "time series regime"]:
    """Return p(s_{T+h} | y_1, ..., y_T) for h = 1, 2, .., of steps without observations.

    Args:
        log_transition: Of the steps to come.
        belief: After the last observation.
    """
    regimes = log_transition.shape[-1]
    now, probabilities = of_newest(belief.exp(), regimes).unsqueeze(-2), []
    for transition in log_transition.exp().unbind():
        now = now @ transition
        probabilities.append(now.squeeze(-2))
    return torch.stack(probabilities)


def sample(
    log_transition: Float[Tensor, "time_or_1 #series regime regime"],
    log_density: Float[Tensor, "time series history"],
    belief: Float[Tensor, "series memory"],
    num_samples: int,
    generator: torch.Generator | None = None,
    active: Bool[Tensor, "time series"] | None = None,
) -> Int[Tensor, "time sample series"]:
    """Return paths of regimes given all observations, exact: forward, then backward with draws (Chib 1996).

    Args:
        log_transition: See `filter`.
        log_density: See `filter`; of pairs of regimes.
        belief: See `filter`.
        num_samples: Number of paths.
        generator: Source of random numbers.
        active: See `filter`.

    Raises:
        ValueError: See `filter`.
    """
    filtered = filter(log_transition, log_density, belief, active)
    regimes = belief.shape[-1]

    state = draw_index(torch.softmax(filtered.belief, -1).expand(num_samples, -1, -1), -1, generator)
    path = []
    for step, joint in zip(reversed(range(len(log_density))), reversed(filtered.histories.unbind()), strict=True):
        path.append(state)
        pairs = joint.unflatten(-1, (regimes, regimes)).expand(num_samples, -1, -1, -1)
        pairs = pairs.gather(-2, state[..., None, None].expand(-1, -1, 1, regimes)).squeeze(-2)
        before = draw_index(torch.softmax(pairs, -1), -1, generator)
        state = before if active is None else torch.where(active[step], before, state)
    return torch.stack(path[::-1])


def _predicted(transition: Tensor, belief: Tensor) -> Tensor:
    """Return log p(history at t | y_1, ..., y_{t-1})."""
    regimes = transition.shape[-1]
    return (transition.mT.unsqueeze(-1) + belief.unflatten(-1, (1, regimes, -1))).flatten(1)


def _every(log_transition: Tensor, log_density: Tensor) -> Tensor:
    """Return the transitions of each step."""
    return log_transition.expand(len(log_density), *log_transition.shape[1:])


def _check(log_transition: Tensor, log_density: Tensor, belief: Tensor) -> None:
    """Refuses sizes that do not fit."""
    regimes, memories, histories = log_transition.shape[-1], belief.shape[-1], log_density.shape[-1]
    power = memories
    while power > 1 and power % regimes == 0 and regimes > 1:  # not by a logarithm, which rounds
        power //= regimes
    if histories != regimes * memories or memories < regimes or (regimes > 1 and power != 1):
        raise ValueError(
            f"expected K^n probabilities of memories and K^(n + 1) densities for K = {regimes} regimes, got {memories} "
            f"and {histories}"
        )
    if len(log_transition) not in (1, len(log_density)):
        raise ValueError(f"expected transitions of {len(log_density)} steps or of all, got {len(log_transition)}")
