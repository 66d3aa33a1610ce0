"""Forecasters that go on learning, by a learner over the parameters of a trained model."""

import copy
import dataclasses
import math
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from gluonts.itertools import batcher
from gluonts.model import Predictor
from gluonts.model.forecast import Forecast
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from tsforecast.data import ForecastTask
from tsforecast.data.checks import check_entries
from tsforecast.data.files import save_tensors
from tsforecast.data.magnitude import find_exponents
from tsforecast.data.task import instances
from tsforecast.data.tensors import expect_like, load_tensors
from tsforecast.data.windows import collate, cut, since_first_value
from tsforecast.forecasting.predictor import StateSpacePredictor, load_predictor, save_predictor, with_module
from tsforecast.learners import LEARNERS, AbstractNetwork, AbstractNetworkLearner, LearnerConfig, LogDensity, Subspace
from tsforecast.learners.loop import in_prior_units
from tsforecast.models import FORMAT, AbstractForecaster, Batch
from tsforecast.progress import follow

_BELIEF = "belief.pt"
EVIDENCE = ("likelihood", "objective")


@dataclasses.dataclass(frozen=True)
class Adaptation:
    """Options by which a forecaster goes on learning, once it has been trained.

    Attributes:
        learner: A name in `tsforecast.learners.LEARNERS`, but not "adf", which learns classes alone.
        drift: The drift between periods, a name in `DRIFTS`.
        rate: Rate of the drift in a period.
        variance: Variance of every parameter in the prior, whose mean is what was trained.
        rank: Rank of `lofi` and `lrkf`.
        part: Regular expression that names of parameters must contain; "" for all of them.
        evidence: "likelihood" of a period given what came before; or "objective", by which the model was trained. If
            that is the CRPS, the evidence is its negative times the number of values (a generalised posterior; Bissiri,
            Holmes and Walker 2016).
        settings: Further arguments of the learner's constructor.

    Raises:
        ValueError: If a name is not known or a number out of its range.
    """

    learner: str = "lofi"
    drift: str = "wiener"
    rate: float = 0.02
    variance: float = 0.1
    rank: int = 10
    part: str = ""
    evidence: str = "objective"
    settings: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.evidence not in EVIDENCE:
            raise ValueError(f"expected evidence to be one of {', '.join(EVIDENCE)}, got {self.evidence!r}")
        _ = self.config  # making it checks the other fields
        if not LEARNERS[self.learner].numbers:
            raise ValueError(
                f"expected a learner of numbers, such as 'lofi', got {self.learner!r}, which learns classes alone"
            )

    @property
    def config(self) -> LearnerConfig:
        """Return the configuration of the learner."""
        names = ("learner", "drift", "rate", "variance", "rank", "settings")
        return LearnerConfig(**{name: getattr(self, name) for name in names})

    def build(
        self, module: AbstractForecaster, trained: Float[Tensor, " weight"] | None = None
    ) -> tuple[AbstractNetworkLearner[Any], "PeriodNetwork"]:
        """Return the learner over the parameters of a model, and the network that it learns.

        Args:
            module: The model whose parameters may learn.
            trained: Mean of the prior; None for the present parameters.

        Raises:
            ValueError: If `part` matches no parameter.
        """
        names = tuple(name for name, p in module.named_parameters() if p.requires_grad and re.search(self.part, name))
        if not names:
            known = ", ".join(name for name, _ in module.named_parameters())
            raise ValueError(f"expected part to match parameters of the model ({known}), got {self.part!r}")
        network = PeriodNetwork(_Evidence(module, self.evidence), names, None)
        mean = network.weights() if trained is None else trained
        return self.config.build(network, LogDensity(), mean), network


class _Evidence(nn.Module):
    """The log-density of a period for each series; a module, so that its parameters may be replaced."""

    def __init__(self, net: AbstractForecaster, evidence: str) -> None:
        super().__init__()
        self.net = net
        self.evidence = evidence

    def forward(self, batch: Batch) -> Float[Tensor, " series"]:
        if self.evidence == "likelihood" or self.net.training_options.objective == "likelihood":
            return self.net.log_likelihood(batch)
        return -self.net.loss(batch) * batch["future_observed"].flatten(1).sum(1)


@dataclasses.dataclass(frozen=True)
class PeriodNetwork(AbstractNetwork):
    """The log-density of a period as a function of a forecaster's parameters, for each series.

    Inputs are rows of the batch.

    Attributes:
        evidence: The log-density of a batch.
        names: Names of the parameters that are learnt, in the order of the vector.
        batch: Windows of some series; None where there are none yet.
    """

    evidence: _Evidence
    names: tuple[str, ...]
    batch: Batch | None

    def _parameters(self) -> dict[str, nn.Parameter]:
        named = dict(self.evidence.net.named_parameters())
        return {name: named[name] for name in self.names}

    @property
    def sizes(self) -> tuple[int, ...]:
        """Return the number of weights of each parameter."""
        return tuple(p.numel() for p in self._parameters().values())

    def weights(self) -> Float[Tensor, " weight"]:
        """Return the present parameters of the model as one vector."""
        return torch.cat([p.detach().flatten() for p in self._parameters().values()])

    def load(self, weights: Float[Tensor, " weight"]) -> None:
        """Puts weights into the model."""
        for p, part in zip(self._parameters().values(), weights.split(list(self.sizes)), strict=True):
            p.data.copy_(part.view_as(p))

    def _values(self, weights: Tensor, windows: Batch) -> Tensor:
        parts = zip(self._parameters().items(), weights.split(list(self.sizes)), strict=True)
        values = {f"net.{name}": part.view_as(p) for (name, p), part in parts}
        return torch.func.functional_call(self.evidence, values, (windows,))

    def _windows(self, inputs: Tensor) -> Batch:
        assert self.batch is not None
        rows = inputs[:, 0].long()
        return {name: value[rows] for name, value in self.batch.items() if isinstance(value, Tensor)}

    def __call__(self, weights: Float[Tensor, " weight"], inputs: Float[Tensor, "point 1"]) -> Float[Tensor, "point 1"]:
        """Return the log-density of the period, for each series."""
        return self._values(weights, self._windows(inputs)).unsqueeze(-1)

    def linearise(
        self, weights: Float[Tensor, " weight"], inputs: Float[Tensor, "point 1"]
    ) -> tuple[Float[Tensor, "point 1"], Float[Tensor, "point 1 weight"]]:
        """Return the log-densities and their gradients, series by series."""

        def one(theta: Tensor, window: Batch) -> Tensor:
            return self._values(theta, {name: value.unsqueeze(0) for name, value in window.items()})[0]

        both = torch.func.vmap(torch.func.grad_and_value(one), (None, 0), randomness="different")
        gradient, value = both(weights, self._windows(inputs))
        return value.unsqueeze(-1), gradient.unsqueeze(1)


@dataclasses.dataclass(frozen=True)
class AdaptationResult:
    """Forecasts of a model that goes on learning, and a table of how it changed.

    Attributes:
        forecasts: Forecasts of every test window, series by series as in the task's test data.
        windows: A row for every window: `start`, `evidence` (mean over the series, before it was learnt from) and
            `moved`. The last is the distance of the parameters from those that were trained, in standard deviations of
            the prior.
    """

    forecasts: list[Forecast]
    windows: pd.DataFrame


class AdaptivePredictor(Predictor):
    """A predictor that learns from every new period of its series.

    Args:
        predictor: A trained predictor, which is not changed.
        adaptation: How it learns.
        trained: Mean of the prior over the parameters; None for those that the predictor has.
    """

    def __init__(
        self,
        predictor: StateSpacePredictor,
        adaptation: Adaptation | None = None,
        trained: Float[Tensor, " weight"] | None = None,
    ) -> None:
        super().__init__(predictor.prediction_length)
        module = copy.deepcopy(predictor.prediction_net).eval()
        assert isinstance(module, AbstractForecaster)
        self.predictor = with_module(predictor, module)
        self.module = module
        self.adaptation = adaptation or Adaptation()
        self.learner, self.network = self.adaptation.build(module, trained)
        self.trained = self.network.weights() if trained is None else trained
        module.requires_grad_(False)  # gradients are taken of functions of the weights
        self.belief = self.learner.init()

    def predict(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, dataset: Iterable[dict[str, Any]], num_samples: int | None = None
    ) -> Iterator[Forecast]:
        """Return forecasts as `StateSpacePredictor.predict` does, with the parameters learnt so far."""
        return self.predictor.predict(dataset, num_samples)

    @property
    def weights(self) -> Float[Tensor, " weight"]:
        """Return the mean of the belief over the parameters."""
        mean, network = self.learner.weights(self.belief), self.learner.network
        return network.weights(mean) if isinstance(network, Subspace) else mean

    def _over(self, batch: Batch) -> AbstractNetworkLearner[Any]:
        """Return the learner of a period's windows, in a subspace of the parameters where it has one."""
        network, learnt = dataclasses.replace(self.network, batch=batch), self.learner.network
        inside = isinstance(learnt, Subspace)
        return self.learner.with_network(dataclasses.replace(learnt, network=network) if inside else network)

    def learn(self, dataset: Iterable[dict[str, Any]]) -> float:
        """Let the belief drift, and learn from the last `prediction_length` steps of every entry.

        Args:
            dataset: Entries that end with a new period, the same for all.

        Returns:
            Mean over the series of the log-density of the period before it was learnt from.

        Raises:
            ValueError: If an entry is not as expected; the message names the series.
        """
        length, predictor = self.prediction_length, self.predictor
        total, count = 0.0, 0
        for entries in batcher(dataset, predictor.batch_size):
            check_entries(entries, predictor.freq, min_length=length + 1, all_missing=True)
            prepared = predictor.input_transform(iter(entries), is_train=True)
            past = self.module.data.scaling_length or None
            windows = [since_first_value(cut(e, len(e["target"]) - length, past, length)) for e in prepared]
            free = self.module.units.is_scale_free
            exponents = find_exponents(windows, self.module.data.scaling_length) if free else None
            batch = collate(windows, predictor.device, exponents)
            learner = self._over(batch)
            rows = torch.arange(len(windows), device=predictor.device, dtype=self.weights.dtype).unsqueeze(-1)
            passed = 0.0 if count else 1.0  # one period passes for all batches
            self.belief, prediction = learner.step(self.belief, rows, torch.zeros_like(rows), None, passed)
            total, count = total + float(prediction.log_prob.sum()), count + len(windows)
        self.network.load(self.weights)
        return total / max(count, 1)

    def save(self, folder: str | Path) -> None:
        """Writes model and belief, which `load_adaptive` reads; files that are there are replaced whole."""
        folder = Path(folder)
        save_predictor(self.predictor, folder / "predictor")
        state = {
            "tsforecast_format": FORMAT,
            "adaptation": dataclasses.asdict(self.adaptation),
            "mean": self.trained,
            "belief": pytree.tree_leaves(self.belief),
        }
        save_tensors(state, folder / _BELIEF)


def load_adaptive(folder: str | Path, device: str = "auto") -> AdaptivePredictor:
    """Reads what `AdaptivePredictor.save` wrote, onto any device; no code of the files is run.

    Raises:
        FileNotFoundError: If there is no such folder or file.
        ValueError: If it is damaged, of another program or of another format.
    """
    path = Path(folder) / _BELIEF
    if not path.is_file():
        raise FileNotFoundError(f"expected a predictor that learns in {folder}: there is no {path}")
    predictor = load_predictor(Path(folder) / "predictor", device)
    try:
        state = load_tensors(path, predictor.device)
        if state["tsforecast_format"] != FORMAT:
            raise ValueError(f"it has format {state['tsforecast_format']}, this version of tsforecast reads {FORMAT}")
        new = AdaptivePredictor(predictor, Adaptation(**state["adaptation"]))
        expect_like(state["mean"], new.trained, "mean")
        expect_like(state["belief"], pytree.tree_leaves(new.belief), "belief")
        found = AdaptivePredictor(predictor, new.adaptation, state["mean"])
        found.belief = pytree.tree_unflatten(state["belief"], pytree.tree_structure(found.belief))
        found.network.load(found.weights)
    except (RuntimeError, KeyError, TypeError, AttributeError, ArithmeticError, ValueError) as error:
        raise ValueError(f"{path} holds no readable belief ({error}); it is damaged or not of tsforecast") from error
    return found


def rolling(
    predictor: AdaptivePredictor, task: ForecastTask, num_samples: int = 100, seed: int = 0, *, frozen: bool = False
) -> AdaptationResult:
    """Return forecasts of the test windows of a task, each learnt from before the next is forecast.

    Args:
        predictor: A predictor, which goes on from what it has learnt.
        task: A task whose test windows are of the same periods for all series.
        num_samples: Number of sample paths.
        seed: Seed of what is drawn, window by window.
        frozen: Whether nothing is learnt, for comparison. The random numbers are the same, so differences are less
            noisy.

    Raises:
        ValueError: If the series do not end together.
    """
    pasts, labels = instances(task.test("rolling"))
    series, windows = len(task.entries), task.windows
    starts = [labels[k]["start"] for k in range(windows)]
    for number, label in enumerate(labels):
        if label["start"] != starts[number % windows]:
            raise ValueError(
                f"expected series that end together, as they are learnt from period by period; the test windows of "
                f"{label['item_id']!r} and {labels[0]['item_id']!r} begin at different times"
            )
    found: list[Any] = [None] * len(pasts)
    rows = []
    for k in follow(range(windows), "learning", windows, "periods"):
        torch.manual_seed(int(np.random.SeedSequence([seed % 2**63, k]).generate_state(1)[0]))
        now = range(k, series * windows, windows)
        for place, forecast in zip(now, predictor.predict([pasts[i] for i in now], num_samples), strict=True):
            found[place] = forecast
        whole = [{**pasts[i], "target": np.concatenate([pasts[i]["target"], labels[i]["target"]], -1)} for i in now]
        moved = float(in_prior_units(predictor.learner, predictor.belief)[0].norm())
        rows.append((starts[k].to_timestamp(), math.nan if frozen else predictor.learn(whole), moved))
    return AdaptationResult(found, pd.DataFrame(rows, columns=pd.Index(["start", "evidence", "moved"])))
