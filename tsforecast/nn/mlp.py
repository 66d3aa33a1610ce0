"""Layers that several networks are made of."""

import itertools
import math
from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from tsforecast.core.linalg import contracted


def mlp(*widths: int) -> nn.Sequential:
    """Linear layers with leaky ReLUs between them."""
    layers: list[nn.Module] = []
    for inner, outer in itertools.pairwise(widths):
        layers += [nn.Linear(inner, outer), nn.LeakyReLU()]  # leaky: a unit without a slope would never learn again
    return nn.Sequential(*layers[:-1])


def shrink_last(layers: nn.Sequential) -> nn.Linear:
    """Makes the last linear layer's outputs ten times smaller, and returns it."""
    last = layers[-1]
    assert isinstance(last, nn.Linear)
    with torch.no_grad():
        last.weight.mul_(0.1)
        last.bias.mul_(0.1)
    return last


class InputNetwork(nn.Module):
    """One layer over the features of a step, and an embedding of the series.

    Args:
        num_inputs: Features of a step.
        num_series: Series in the training data; index 0 is "unknown". Where all are, there is no embedding.
        embedding_dim: Size of the embedding.
        hidden: Width of the layer.
    """

    def __init__(self, num_inputs: int, num_series: int, embedding_dim: int, hidden: int) -> None:
        super().__init__()
        # Series 0 is unknown, and has no embedding.
        self.embedding = nn.Embedding(num_series + 1, embedding_dim, padding_idx=0) if num_series else None
        self.of_time = nn.Linear(num_inputs, hidden) if num_inputs else None
        self.bias = None if num_inputs else nn.Parameter(torch.zeros(hidden))
        self.of_series = nn.Linear(embedding_dim, hidden, bias=False) if num_series else None

    def forward(
        self, inputs: Float[Tensor, "time #series feature"], series: Int[Tensor, " series"]
    ) -> Float[Tensor, "time series hidden"]:
        """Features u_t for the other networks."""
        if self.of_time is None:
            assert self.bias is not None
            known = self.bias.expand(len(inputs), 1, -1)
        else:
            known = self.of_time(inputs)
        if self.embedding is not None and self.of_series is not None:
            known = known + self.of_series(self.embedding(series))
        return nn.functional.leaky_relu(known.expand(-1, len(series), -1))


class BaseMixture(nn.Module):
    """Parameters as a softmax mixture of base parameters: sum_k a_k(s) B_k with a(s) = softmax(network(s)).

    Args:
        switch_dim: Size of s.
        initial: Base parameters by name, (basis, ...).
        hidden: Width of the network; 0 for the switch itself as weights (one-hot, categorical switches).
        stable: Names of square matrices that are divided by their largest singular value where it exceeds 1. That of a
            mixture of them does not exceed 1 either, so no sequence of mixtures expands.
    """

    def __init__(self, switch_dim: int, initial: dict[str, Tensor], hidden: int, stable: tuple[str, ...] = ()) -> None:
        super().__init__()
        num_bases = len(next(iter(initial.values())))
        self.weights = mlp(switch_dim, hidden, num_bases) if hidden else None
        self.stable = stable
        self.bases = nn.ParameterDict({name: nn.Parameter(x.clone()) for name, x in initial.items()})

    def mix(self, switch: Float[Tensor, "*batch switch"]) -> Float[Tensor, "*batch basis"]:
        """Return the mixing weights a(s) of the bases."""
        return switch if self.weights is None else torch.softmax(self.weights(switch), -1)

    def even(self) -> dict[str, Tensor]:
        """All parameters by name, of equal weights."""
        return self.split(self.joined().mean(0))

    def joined(self) -> Float[Tensor, "basis size"]:
        """All bases side by side, so that one product mixes them."""
        # A mixture of contractions is one.
        bases = [contracted(x) if name in self.stable else x for name, x in self.bases.items()]
        return torch.cat([x.flatten(1) for x in bases], -1)

    def split(self, mixed: Float[Tensor, "*batch size"]) -> dict[str, Tensor]:
        """Mixed parameters by name, with the batch in front."""
        sizes = [x[0].numel() for x in self.bases.values()]
        parts = mixed.split(sizes, -1)
        return {
            name: part.unflatten(-1, x.shape[1:])
            for (name, x), part in zip(self.bases.items(), parts, strict=True)
        }  # fmt: skip


def resized(x: Float[Tensor, "*batch dim"], dim: int) -> Float[Tensor, "*batch other"]:
    """The first components, and zeros behind them where there are fewer."""
    return nn.functional.pad(x, (0, dim - x.shape[-1]))


class ProposalNetwork(nn.Module):
    """The approximate likelihoods q(s_t | y_t, u_t) and q(z_t | y_t, u_t): means, and log inverse scales.

    Args:
        num_inputs: Size of y_t and u_t together.
        switch_dim: Size of s.
        auxiliary_dim: Size of z; 0 without.
        hidden: Width of the layers.
        ladder: Whether both come from one network of three hidden layers, q(z) read from its second and q(s) from its
            third (Kurle et al. 2020); else each has a network of its own, of one hidden layer.
    """

    def __init__(self, num_inputs: int, switch_dim: int, auxiliary_dim: int, hidden: int, ladder: bool) -> None:
        super().__init__()
        self.ladder = ladder
        if ladder:
            self.lower = nn.Sequential(mlp(num_inputs, hidden, hidden), nn.LeakyReLU())
            self.upper = nn.Sequential(mlp(hidden, hidden), nn.LeakyReLU())
            self.auxiliary = nn.Linear(hidden, 2 * auxiliary_dim)
            self.switch = nn.Linear(hidden, 2 * switch_dim)
        else:
            self.auxiliary = mlp(num_inputs, hidden, 2 * auxiliary_dim) if auxiliary_dim else None
            self.switch = mlp(num_inputs, hidden, 2 * switch_dim)

    @property
    def auxiliary_layer(self) -> nn.Linear:
        """Return the last layer of the auxiliary's proposal q(z)."""
        layer = self.auxiliary[-1] if isinstance(self.auxiliary, nn.Sequential) else self.auxiliary
        assert isinstance(layer, nn.Linear), "no auxiliary"
        return layer

    def forward(
        self, inputs: Float[Tensor, "time series feature"]
    ) -> tuple[Float[Tensor, "time series double"], Float[Tensor, "time series double_"] | None]:
        """Return the proposal of the switch, and that of the auxiliary, from y_t and u_t."""
        if self.ladder:
            lower = self.lower(inputs)
            return self.switch(self.upper(lower)), self.auxiliary(lower)  # pyright: ignore[reportOptionalCall]
        return self.switch(inputs), None if self.auxiliary is None else self.auxiliary(inputs)


# What the network says of the next switch is at most this: where it expands, the switch would run away within a series,
# and with it the mixing weights to a corner from which no gradient leads back.
_FARTHEST = 5.0


class SwitchDynamics(nn.Module):
    """The first switch, and the drift f(s_{t-1}, u_t) of the next ones.

    Args:
        switch_dim: Size of s.
        hidden: Size of u, and width of the hidden layer.
        categorical: Whether the outputs are logits of categories; else means (and, of the first switch, log inverse
            scales).
        persistence: In [0, 1). Initial share p of s_{t-1} in the drift, p s_{t-1} + (1 - p) network, learnt for each
            dimension: that of the first; the log-odds of the last are higher by 3, so that there are regimes of several
            time scales. 0 for the network alone. Of categories about the initial probability to stay: logits of pairs
            of them are added to those of the network.
    """

    def __init__(self, switch_dim: int, hidden: int, categorical: bool = False, persistence: float = 0.0) -> None:
        super().__init__()
        self.first = nn.Linear(hidden, switch_dim * (1 if categorical else 2))
        self.of_inputs = nn.Linear(hidden, hidden)
        self.of_switch = nn.Linear(switch_dim, hidden, bias=False)
        self.head = nn.Linear(hidden, switch_dim)
        self.categorical = categorical
        self.stay: nn.Parameter | None = None  # log-odds
        if categorical:
            # Odds against each other category in a softmax, such that a category stays with this probability.
            odds = math.log(persistence / (1 - persistence) * max(switch_dim - 1, 1)) if persistence else 0.0
            self.stay = nn.Parameter(odds * torch.eye(switch_dim))
        elif persistence:
            # Slow dimensions beside fast ones.
            self.stay = nn.Parameter(torch.full((switch_dim,), persistence).logit() + torch.linspace(0, 3, switch_dim))

    def forward(
        self, features: Float[Tensor, "time series hidden"]
    ) -> tuple[Float[Tensor, "time series first"], Callable[[Tensor, int], Tensor]]:
        """Outputs for the first switch at every step; and the function of switch and step."""
        of_inputs = self.of_inputs(features).unbind()  # for all steps at once; see `gaussian.unbind`

        def drift(switch: Tensor, time: int) -> Tensor:
            moved = self.head(nn.functional.leaky_relu(self.of_switch(switch) + of_inputs[time]))
            if not self.categorical:
                moved = _FARTHEST * nn.functional.softsign(moved / _FARTHEST)
            if self.stay is not None and self.categorical:
                moved = moved + switch @ self.stay
            elif self.stay is not None:  # a mean of both, lest what the network says adds up over time
                moved = moved + (switch - moved) * self.stay.sigmoid()
            return moved

        return self.first(features), drift
