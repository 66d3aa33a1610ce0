"""Forecasters that go on learning, by a learner over the parameters of a trained model."""

import copy
import dataclasses
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from gluonts.itertools import batcher
from gluonts.model import Predictor
from gluonts.model.forecast import Forecast
from jaxtyping import Float
from torch import Tensor
from torch.utils import _pytree as pytree

from tsforecast.data.checks import check_entries
from tsforecast.data.magnitude import find_exponents
from tsforecast.data.transform import Prepare
from tsforecast.data.windows import collate, cut, since_first_value
from tsforecast.forecasting.period_network import Evidence, PeriodNetwork, WindowRows
from tsforecast.forecasting.predictor import StateSpacePredictor, load_predictor, save_predictor, with_module
from tsforecast.io.tensors import expect_like, load_tensors, save_tensors
from tsforecast.learners import LEARNERS, AbstractNetworkLearner, LearnerConfig, LogDensity, Subspace
from tsforecast.learners.memory.memory_learner import Remembered
from tsforecast.models import FORMAT, Batch
from tsforecast.models.bounds import one_of
from tsforecast.settings import AdaptationSettings, DriftSettings

_BELIEF = "belief.pt"
EVIDENCE = ("likelihood", "objective")
# "k-center" compares inputs, and windows of several units have no distance.
MEMORIES_OF_WINDOWS = ("none", "random", "grs")


@dataclasses.dataclass(frozen=True)
class Adaptation(AdaptationSettings):
    """Options by which a forecaster goes on learning once it has been trained: those of `AdaptationSettings`.

    The prior lies around what was trained. If the objective is the CRPS, the evidence is its negative times the number
    of values (a generalised posterior; Bissiri, Holmes and Walker 2016). A memory keeps windows whatever the drift
    makes of the Gaussian; forgetting lets them fade.

    Attributes:
        learner: A name in `tsforecast.learners.LEARNERS`, but not "adf", which learns classes alone.

    Raises:
        ValueError: If a name is not known or a number out of its range.
    """

    learner: str = "lofi"

    def __post_init__(self) -> None:
        try:
            re.compile(self.part)
        except (re.error, TypeError) as error:
            raise ValueError(f"expected part to be a regular expression, got {self.part!r:.80} ({error})") from error
        one_of(EVIDENCE, evidence=self.evidence)
        one_of(MEMORIES_OF_WINDOWS, **{"memory of a forecaster": self.memory})
        if self.memory != "none" and self.learner != "vb":
            raise ValueError(f"expected a memory beside the learner 'vb', got learner {self.learner!r}")
        if self.memory_size < 1:
            raise ValueError(f"expected memory_size of at least 1, got {self.memory_size}")
        if taken := sorted({"memory", "memory_size", "features", "mean"} & set(self.settings or {})):
            raise ValueError(f"expected {taken[0]} outside of settings, or not at all")
        _ = self.config  # making it checks the other fields
        if not LEARNERS[self.learner].numbers:
            raise ValueError(
                f"expected a learner of numbers, such as 'lofi', got {self.learner!r}, which learns classes alone"
            )

    @property
    def config(self) -> LearnerConfig:
        """Return the configuration of the learner."""
        return LearnerConfig(self.learner, **DriftSettings.values_of(self))

    def build(
        self, predictor: StateSpacePredictor, trained: Float[Tensor, " weight"] | None = None
    ) -> tuple[AbstractNetworkLearner[Any], PeriodNetwork]:
        """Return the learner over the parameters of a model, and the network that it learns.

        Args:
            predictor: With the model whose parameters may learn.
            trained: Mean of the prior; None for the present parameters.
        """
        module = predictor.prediction_net
        names = tuple(name for name, p in module.named_parameters() if p.requires_grad and re.search(self.part, name))
        if not names:
            known = ", ".join(name for name, _ in module.named_parameters())
            raise ValueError(f"expected part to match parameters of the model ({known}), got {self.part!r}")
        rows = WindowRows.of(module, predictor.prediction_length)
        network = PeriodNetwork(Evidence(module, self.evidence), names, rows)
        mean = network.weights() if trained is None else trained
        config = self.config
        if self.learner == "vb":
            config = dataclasses.replace(config, settings=self._of_blocks(rows, module.data.scaling_length))
        return config.build(network, LogDensity(), mean), network

    def _of_blocks(self, rows: WindowRows, past: int) -> dict[str, Any]:
        """Return the settings of a learner of blocks.

        It makes one step with a period, if nothing else is said: the mode of a period's objective lies far off, as the
        objective is no likelihood. One step moves no parameter further than a filter does.
        """
        settings = dict(self.settings or {})
        if "fit" not in settings:
            settings = {"passes": 1, **settings}
        if self.memory == "none":
            return settings
        if not past:
            raise ValueError(
                "expected a model with a context_length for a memory of windows; this one reads the whole past, "
                "which has no bound: train it with a context_length"
            )
        kept = {"memory": self.memory, "memory_size": self.memory_size, "features": (rows.width(past),)}
        return settings | kept


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
        self.predictor = with_module(predictor, module)
        self.module = module
        self.adaptation = adaptation or Adaptation()
        self.learner, self.network = self.adaptation.build(self.predictor, trained)
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
        return self.weights_of(self.belief)

    def weights_of(self, belief: Any) -> Float[Tensor, " weight"]:
        """Return the mean of a belief over the parameters."""
        mean, network = self.learner.weights(belief), self.learner.network
        return network.weights(mean) if isinstance(network, Subspace) else mean

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
            batch = collate(windows, predictor.device, exponents, past)
            passed = 0.0 if count else 1.0  # one period passes for all batches
            self.belief, evidence = self.after(self.belief, batch, passed)
            total, count = total + evidence, count + len(windows)
        self.network.load(self.weights)
        return total / max(count, 1)

    def after(self, belief: Any, batch: Batch, passed: float) -> tuple[Any, float]:
        """Return the belief after some periods and what a batch has taught, and the sum of log-densities before it."""
        rows = self.network.rows.pack(batch, batch["forecast_start"], self.trained)
        observed = batch["future_observed"].flatten(1).any(1, keepdim=True)
        target = torch.zeros_like(rows[:, :1])
        belief, prediction = self.learner.step(belief, rows, target, observed, passed)
        return belief, float(prediction.log_prob.sum())

    def remembered(self) -> pd.DataFrame:
        """Return the windows that are kept as they came, oldest first.

        Returns:
            A row for each: `item_id` (None for a series that was not in the training), `start` of its period, `age` in
            periods, and `power` of its likelihood, which forgetting lowers.
        """
        columns = ["item_id", "start", "age", "power"]
        if not isinstance(self.belief, Remembered) or not bool(self.belief.memory.valid.any()):
            return pd.DataFrame(columns=pd.Index(columns))
        prepare = self.predictor.input_transform
        assert isinstance(prepare, Prepare)
        names = {number: item for item, number in prepare.index.items()}
        memory = self.belief.memory
        kept = memory.inputs[memory.valid]
        numbers = self.network.rows.unpack(kept)["series_index"].tolist()
        parts = {
            "item_id": [names.get(number) for number in numbers],
            "start": self.network.rows.starts(kept, self.predictor.freq),
            "age": memory.age[memory.valid].tolist(),
            "power": memory.power[memory.valid].tolist(),
        }
        return pd.DataFrame(parts).sort_values(["age", "item_id"], ascending=[False, True], ignore_index=True)

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
