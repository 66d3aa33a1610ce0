"""Commands that learn from streams, choose arms and look for least values: what each takes, a record each."""

from dataclasses import dataclass

from tsforecast.cli import names, parsing
from tsforecast.cli.option_groups import RunOptions, SeedOptions
from tsforecast.cli.records import Command, option
from tsforecast.settings import AgentSettings, BeliefSettings, OutlierSettings

_HIDDEN = "widths of hidden layers; none: linear"


@dataclass(frozen=True, kw_only=True)
class _Source(Command):
    """Data."""

    target: str = option("target", "column to predict; all others are features")
    time: str | None = option(None, "column of time stamps; drifts then depend on the time that passed")
    id: str | None = option(None, "column by which a target finds the row before that it belongs to", later=True)
    delay: str | None = option(None, "targets come so many observations, or so much time (7D), later", later=True)
    unit: str | None = option(None, "unit of time of the drift, such as 1h; default: the first gap")
    task: str = option("auto", "classes, numbers or auto: by the first target")
    expected_features: int = option(0, "columns to begin with; default: twice the first observation's", least=0)
    expected_classes: int = option(10, "outputs of the network to begin with", least=1)
    limit: int | None = option(None, "observations at most", least=1)


@dataclass(frozen=True, kw_only=True)
class Stream(OutlierSettings, SeedOptions, RunOptions, _Source):
    """Predict, score and learn from one observation after the other (see docs/learners.md)."""

    learner: str = option("lofi", "one of {LEARNERS}; default: lofi", place="LEARNER", nargs="?")
    data: str = option(
        "",
        "{STREAMS}; {PREPARED} once prepared; CSV or Parquet; - for JSON lines on stdin",
        metavar="NAME|FILE",
    )
    hidden: list[int] = option([20], _HIDDEN, nargs="*")
    activation: str = option("tanh", "{ACTIVATIONS}")
    noise: float | None = option(None, "of standardised numbers; default: learnt, .5 with --weight, lrkf, ogd, vb")
    block: int = option(1, "observations that are learnt from together", least=1, later=True)
    memory: str | None = option(None, "of vb: {MEMORIES}; default: its own, none", later=True)
    memory_size: int = option(25, "observations that a memory keeps as they came", least=1, later=True)
    save_every: int = option(100, "observations between two saved states", least=1)

    def check(self) -> None:
        """Refuse what no stream can have."""
        if not self.data:
            raise ValueError("expected data, as in `tsforecast stream lofi --data digits`, or --resume RUN")
        for name, known in (
            ("learner", names.LEARNERS),
            ("activation", names.ACTIVATIONS),
            ("weight", names.WEIGHTS),
            ("task", ("classes", "numbers", "auto")),
        ):
            if getattr(self, name) not in known:
                raise ValueError(f"expected {name} to be one of {', '.join(known)}, got {getattr(self, name)!r}")
        if self.memory is not None and self.learner != "vb":
            raise ValueError(f"expected --memory beside the learner 'vb', got learner {self.learner!r}")


@dataclass(frozen=True, kw_only=True)
class Bandit(AgentSettings, SeedOptions, RunOptions):
    """Choose arms by their contexts and learn from what they pay, several times (see docs/bandits.md)."""

    agent: str = option("lofi", "one of {AGENTS}; default: lofi", place="AGENT", nargs="?")
    data: str = option("", "{BANDITS}; {BANDIT_TABLES} once prepared; CSV or Parquet", metavar="NAME|FILE")
    target: str = option("target", "column of labels: the arm that pays 1")
    rewards: list[str] | None = option(None, "instead: what each arm pays", metavar="COLUMN", nargs="+")
    arm: str | None = option(None, "instead, of a log: column of the arm that was chosen")
    reward: str | None = option(None, "and of what it paid")
    steps: int = option(5000, "rounds of a run", least=1)
    runs: int = option(10, "each in another order, and with another seed", least=1)
    change: bool = option(False, "the best arms change half-way")
    hidden: list[int] = option([50], _HIDDEN, nargs="*")
    all_arms: bool = option(False, "warm up on the rewards of all arms: published protocol, not honest")
    raw_rewards: bool = option(False, "do not scale rewards by those of the warm-up", later=True)
    arms: str | None = option(None, "features of arms: their names in the first column; for --encoding concatenated or "
        "block", reads="file", later=True)  # fmt: skip
    available: str | None = option(None, "of a log: column of the arms that could be chosen, with | between",
        later=True)  # fmt: skip
    missing_rewards: str = option("refuse", "rewards of a log that never came: drop their rows, or count zero",
        choices=("refuse", "drop", "zero"), later=True)  # fmt: skip
    delay: int = option(0, "rounds before a reward is learnt", least=0, later=True)
    propensities: bool = option(False, "write contexts, choices and their probabilities, for --evaluate", later=True)
    draws: int = option(1000, "by which probabilities of thompson are estimated", least=1, later=True)
    evaluate: str | None = option(None, "instead of --data: what AGENT, or --policy, would have earned in a log; its "
        "columns --arm and --reward are `arm` and `reward` unless given", reads="file", later=True)  # fmt: skip
    propensity: str = option("propensity", "of --evaluate: column of the probability of the choice", later=True)
    policy: str | None = option(None, "of --evaluate: beginning of the names of columns with the probability of each "
        "arm under a policy, before the arm's name", metavar="PREFIX", later=True)  # fmt: skip
    first: float = option(0.5, "of --evaluate: share of rows that the agent learns from; the others are judged",
        least=0, most=1, later=True)  # fmt: skip
    level: float = option(0.95, "of --evaluate: of the intervals", later=True)
    bootstrap: int = option(0, "of --evaluate: draws of the log for intervals; 0: by the normal law", least=0,
        later=True)  # fmt: skip
    switch: float | None = option(None, "of --evaluate: largest weight of switch-dr; default: without", later=True)

    def check(self) -> None:
        """Refuse a bandit without data, or with two kinds of them."""
        if self.evaluate:
            if self.data or self.rewards or self.target != "target" or self.change or self.all_arms or self.delay:
                raise ValueError(
                    "expected --evaluate LOG with --arm, --reward and --propensity, and none of --data, --target, "
                    "--rewards, --change, --all_arms and --delay"
                )
            return
        if self.policy is not None:
            raise ValueError("expected --policy beside --evaluate LOG")
        if not self.data:
            raise ValueError("expected --data: " + ", ".join((*names.BANDITS, *names.BANDIT_TABLES)) + ", or a file")


@dataclass(frozen=True, kw_only=True)
class Optimise(BeliefSettings, SeedOptions, RunOptions):
    """Look for the least value of a function by draws from a network's belief (see docs/optimisation.md)."""

    function: str = option("", "one of {FUNCTIONS}", place="FUNCTION", nargs="?")
    evaluations: int = option(100, "in all, of FUNCTION", least=1)
    initial: int = option(5, "Sobol points to begin with", least=2)
    trials: str | None = option(None, "instead of FUNCTION: CSV that you fill in; the next points are new rows")
    bounds: list[str] = option(
        [],
        "columns of the file; :log behind it where factors count, :whole for whole numbers; NAME:WORD|WORD for choices",
        metavar="NAME:LOW:HIGH",
        nargs="+",
    )
    objectives: list[str] = option(["value"], "columns of the file that shall be small; default: value",
        metavar="NAME", nargs="+", later=True)  # fmt: skip
    limits: list[str] = option([], "columns of the file, and the largest number that each may have",
        metavar="NAME:MOST", nargs="+", later=True)  # fmt: skip
    acquisition: str = option("mixed", "thompson: the least of a draw; ei: expected improvement under a Gaussian "
        "process; mixed: both in turn", choices=("thompson", "ei", "mixed"), later=True)  # fmt: skip
    points: int = option(1, "how many points of the file are next", least=1)
    maximise: bool = option(False, "look for the largest values, of the file")
    learner: str = option("vd-ekf", "{OF_NUMBERS}")
    hidden: list[int] = option([300], "widths of hidden layers", nargs="+")
    scale: float = option(2.0, "of the first layer: larger for functions that bend more")
    noise: float = option(1e-3, "variance of standardised values around the function")
    patience: int = option(6, "points that are not better, after which the trust region halves", least=1)
    neighbours: int = option(20, "values that the surrogate is fitted to, at least", least=2)

    def check(self) -> None:
        """Refuse a function together with a table, or neither."""
        if self.trials is not None or self.bounds:
            if self.function or self.output or not (self.trials and self.bounds):
                raise ValueError(
                    "expected --trials FILE and --bounds NAME:LOW:HIGH .. together, and no function or --output"
                )
            if len({*self.objectives}) < len(self.objectives):
                raise ValueError(f"--objectives: expected each column once, got {' '.join(self.objectives)}")
        elif self.limits or self.objectives != ["value"]:
            raise ValueError("expected --limits and --objectives beside --trials FILE, whose columns they name")
        elif not self.function:
            raise ValueError(f"expected a function ({', '.join(names.FUNCTIONS)}), --trials FILE or --resume RUN")
        elif self.function not in names.FUNCTIONS:
            raise ValueError(parsing.unknown("function", self.function, names.FUNCTIONS))
        if self.learner not in names.OF_NUMBERS:
            raise ValueError(f"--learner: {parsing.unknown('learner', self.learner, names.OF_NUMBERS)}")
