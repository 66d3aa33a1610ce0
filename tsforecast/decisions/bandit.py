"""A contextual bandit that acts: it standardises contexts, chooses arms and learns from what they pay."""

import dataclasses
import math
from collections.abc import Hashable, Sequence

import torch
from torch import Tensor

from tsforecast.decisions.buffer import Buffer
from tsforecast.decisions.config import AgentConfig
from tsforecast.decisions.rewards import ArmRewards
from tsforecast.decisions.rules import DRAWS, Chances, Round
from tsforecast.decisions.standing import Standing, Waiting, counted, units_of
from tsforecast.learners.statistics import Statistics


class Bandit:
    """An agent for decisions with a context: `choose`, then `learn` from the reward of the arm that was pulled.

    Until each arm has had its share of rewards, those that lack some are pulled in turn. The model is fitted once there
    are as many rewards as all shares have, of whatever arms. Contexts are standardised by those seen so far. A feature
    that is NaN counts as its mean; one that is constant counts for nothing.

    Rewards are standardised by their mean and standard deviation in the first fit. The units change where the standard
    deviation of all rewards has become twice as large, or rewards that were all the same first differ. The model then
    goes on with what it knows in the new units, and a line is logged. Models of rewards of 0 and 1 are given these as
    they are.

    Args:
        config: The agent.
    """

    def __init__(self, config: AgentConfig) -> None:
        self.config = config
        self.model, self.rule = config.build()
        self._generator = torch.Generator().manual_seed(config.seed)
        self._last: tuple[Tensor, Tensor] | None = None
        self.standing = Standing(
            state=self.model.init(self._generator),
            statistics=Statistics.empty(config.features),
            rewards=torch.zeros(3, dtype=torch.float64),
            paid=torch.zeros(config.arms, dtype=torch.int64),
            units=torch.tensor([0.0, 1.0], dtype=torch.float64),
            first=Buffer.empty(max(config.arms * config.warm_up, 1), config.features),
            chosen=0,
            learnt=0,
            waiting={},
        )

    @property
    def is_warming_up(self) -> bool:
        """Return whether an arm lacks rewards of its share, so that arms are pulled in turn."""
        return bool((self.standing.paid < self.config.warm_up).any())

    @property
    def _scales(self) -> bool:
        """Return whether rewards get units of their own."""
        return self.config.scales_rewards and not self.model.binary

    def generator_state(self) -> Tensor:
        """Return the state of the random numbers."""
        return self._generator.get_state()

    def go_on(self, standing: Standing, generator_state: Tensor) -> None:
        """Takes over what another agent of the same configuration knew.

        Args:
            standing: All that it knew.
            generator_state: Of its random numbers.
        """
        self._generator.set_state(generator_state)
        self.standing, self._last = standing, None

    def choose(
        self, context: Sequence[float] | Tensor, id: Hashable = None, allowed: Sequence[int] | Tensor | None = None
    ) -> int:
        """Return the arm to pull.

        Args:
            context: A number for each feature; NaN where it is missing.
            id: Name of this choice, by which `learn_later` gives its reward; None where that comes by `learn`.
            allowed: Numbers of the arms that may be pulled in this round, or a mask of them; None for all.

        Raises:
            ValueError: If the context has another length or is infinite, a reward is awaited under this id, or no arm
                or an unknown one is allowed.
        """
        if id is not None and id in self.standing.waiting:
            raise ValueError(f"expected an id of its own for each choice, got {id!r}, whose reward is awaited")
        raw, mask = self._read(context), self._mask(allowed)
        statistics, row = self._standardised(raw)
        before = self._generator.get_state()  # a choice that fails must not change later ones
        try:
            arm = self._in_turn(mask)
            if arm is None:
                with torch.no_grad():
                    arm = self.rule.choose(self._round(row, mask), self._generator)
        except BaseException:
            self._generator.set_state(before)
            raise
        waiting = (
            self.standing.waiting if id is None else {**self.standing.waiting, id: (row, arm, self.standing.chosen + 1)}
        )
        self.standing = dataclasses.replace(
            self.standing, statistics=statistics, chosen=self.standing.chosen + 1, waiting=waiting
        )
        self._last = (raw, row)  # `learn` must not count a context twice
        return arm

    def chances(
        self, context: Sequence[float] | Tensor, allowed: Sequence[int] | Tensor | None = None, draws: int = DRAWS
    ) -> Chances:
        """Return the probability of each arm to be chosen in a context. Nothing is counted or learnt.

        They are exact for rules other than Thompson sampling. There, they are so between two arms whose beliefs are
        Gaussian or linear; else they are shares of draws, with a standard error.

        Args:
            context: A number for each feature; NaN where it is missing.
            allowed: As for `choose`.
            draws: Number of draws where there is no closed form.

        Raises:
            ValueError: As by `choose`, or if there is no draw.
        """
        if draws < 1:
            raise ValueError(f"expected at least one draw, got {draws}")
        row, mask = self._standardised(self._read(context))[1], self._mask(allowed)
        arm = self._in_turn(mask)
        if arm is not None:
            return Chances.certain(arm, self.config.arms)
        # The agent's own numbers stay as they are: it chooses as it would have chosen unasked.
        generator = torch.Generator().manual_seed(
            # Multiples of 2^64 / golden ratio lie far apart.
            (self.config.seed + 0x9E3779B97F4A7C15 * self.standing.chosen) % 2**63
        )
        with torch.no_grad():
            return self.rule.chances(self._round(row, mask), generator, draws)

    def learn(self, context: Sequence[float] | Tensor, arm: int, reward: float) -> None:
        """Learns the reward of an arm, also of one that somebody else has chosen.

        Args:
            context: Of the choice.
            arm: That was pulled.
            reward: What it paid.

        Raises:
            ValueError: If the context is not as expected, there is no such arm, or the reward is not finite, or none
                that the agent learns.
        """
        raw = self._read(context)
        statistics = self.standing.statistics
        if self._last is not None and bool(((raw == self._last[0]) | (raw.isnan() & self._last[0].isnan())).all()):
            row = self._last[1]  # counted when it was chosen for
        else:
            statistics, row = self._standardised(raw)
        self._learn(row, self._arm(arm), self._reward(reward), statistics, self.standing.waiting)

    def learn_later(self, id: Hashable, reward: float | None) -> None:
        """Learns the reward of a choice that was made under an id.

        Args:
            id: Of the choice.
            reward: What it paid; None where that will never be known, so that nothing is learnt.

        Raises:
            ValueError: If no reward is awaited under the id, such as where it has come already; or it is not finite.
        """
        if id not in self.standing.waiting:
            raise ValueError(f"expected the id of a choice whose reward is awaited, got {id!r}")
        waiting = dict(self.standing.waiting)
        row, arm, _ = waiting.pop(id)
        if reward is None:
            self.standing = dataclasses.replace(self.standing, waiting=waiting)
        else:
            self._learn(row, arm, self._reward(reward), self.standing.statistics, waiting)

    def settle(self, after: int, reward: float | None) -> list[Hashable]:
        """Ends the wait for rewards of old choices, and returns their ids.

        Args:
            after: Number of later choices during which a reward may still come.
            reward: Of a choice whose time is over, such as 0 where no click is no news; None to learn nothing.

        Raises:
            ValueError: If the number is negative, or the reward is none that the agent learns.
        """
        if after < 0:
            raise ValueError(f"expected a number of choices of at least 0, got {after}")
        last = self.standing.chosen - after
        over = [id for id, (_, _, number) in self.standing.waiting.items() if number < last]
        for id in over:
            self.learn_later(id, reward)
        return over

    def expect(self, context: Sequence[float] | Tensor) -> ArmRewards:
        """Return the expected reward of each arm in a context, and its standard deviation, in units of rewards.

        Of agents that learn 0 and 1 these are logits of the probability of 1. Nothing is counted or learnt.

        Args:
            context: A number for each feature; NaN where it is missing.

        Raises:
            ValueError: If the context has another length or is infinite.
        """
        row = self._standardised(self._read(context))[1]
        with torch.no_grad():
            found = self.model.expect(self.standing.state, row)
        shift, scale = self.standing.units.tolist()
        return dataclasses.replace(found, mean=found.mean * scale + shift, sd=found.sd * scale)

    def _learn(self, row: Tensor, arm: int, reward: float, statistics: Statistics, waiting: Waiting) -> None:
        now = self.standing
        state, units, first, rewards = now.state, now.units, now.first, counted(now.rewards, reward)
        learnt = now.learnt + 1
        before = self._generator.get_state()  # a fit that fails must not change later ones
        try:
            with torch.no_grad():
                if learnt <= first.capacity:
                    # In raw units: the first fit decides on these.
                    first = first.add(row, arm, torch.tensor(reward, dtype=torch.float64))
                    if learnt == first.capacity:
                        units = units_of(rewards, self._scales)
                        seen = first.rescale(*units.tolist()).interactions()
                        seen = dataclasses.replace(seen, rewards=seen.rewards.float())
                        # From the prior: these rewards were not learnt yet.
                        state = self.model.warm_up(self.model.init(self._generator), seen, self._generator)
                else:
                    state, units = now.in_units(self.model, rewards, self._scales)
                    shift, scale = units.tolist()
                    state = self.model.learn(state, row, arm, torch.tensor((reward - shift) / scale), self._generator)
        except BaseException:
            self._generator.set_state(before)
            raise
        paid = now.paid + torch.nn.functional.one_hot(torch.tensor(arm), self.config.arms)
        self.standing = Standing(state, statistics, rewards, paid, units, first, now.chosen, learnt, waiting)

    def _round(self, row: Tensor, mask: Tensor | None) -> Round:
        return Round(self.model, self.standing.state, row, mask)

    def _in_turn(self, mask: Tensor | None) -> int | None:
        """Return the next arm in turn that lacks rewards of its share; None where the rule chooses.

        Where the arms that are allowed have had their shares, and the model is not fitted yet, any comes in turn.
        """
        arms = self.config.arms
        turn = [(self.standing.chosen + k) % arms for k in range(arms)]
        turn = [arm for arm in turn if mask is None or mask[arm]]
        lacking = [arm for arm in turn if self.standing.paid[arm] < self.config.warm_up]
        is_fitted = self.standing.learnt >= self.standing.first.capacity
        return next(iter(lacking if lacking or is_fitted else turn), None)

    def _mask(self, allowed: Sequence[int] | Tensor | None) -> Tensor | None:
        if allowed is None:
            return None
        if isinstance(allowed, Tensor) and allowed.dtype == torch.bool:
            mask = allowed
        else:
            mask = torch.zeros(self.config.arms, dtype=torch.bool)
            mask[[self._arm(arm) for arm in torch.as_tensor(allowed).tolist()]] = True
        if mask.shape != (self.config.arms,) or not bool(mask.any()):
            raise ValueError(f"expected at least one arm of {self.config.arms} to be allowed, got {allowed}")
        return mask

    def _standardised(self, raw: Tensor) -> tuple[Statistics, Tensor]:
        statistics, row = self.standing.statistics.standardise(raw)
        return statistics, row.nan_to_num().float()  # a missing feature counts as its mean, which is 0

    def _read(self, context: Sequence[float] | Tensor) -> Tensor:
        try:
            raw = torch.as_tensor(context, dtype=torch.float64)
        except (ValueError, TypeError) as error:
            raise ValueError(f"expected a context of numbers, got {context!r}") from error
        if raw.shape != (self.config.features,):
            raise ValueError(
                f"expected a context of {self.config.features} numbers, got one of shape {tuple(raw.shape)}"
            )
        if bool(raw.isinf().any()):
            raise ValueError(f"expected finite numbers in a context, got {raw[raw.isinf()][0].item()}")
        return raw

    def _arm(self, arm: int) -> int:
        if isinstance(arm, bool) or arm != int(arm) or not 0 <= arm < self.config.arms:
            raise ValueError(f"expected an arm from 0 to {self.config.arms - 1}, got {arm!r}")
        return int(arm)

    def _reward(self, reward: float) -> float:
        reward = float(reward)
        if not math.isfinite(reward):
            raise ValueError(f"expected a finite reward, got {reward}")
        if self.model.binary and reward not in (0, 1):
            raise ValueError(
                f"expected a reward of 0 or 1, as agent {self.config.agent!r} learns these, got {reward:g}"
            )
        return reward
