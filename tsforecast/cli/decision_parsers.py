"""The parsers of commands that decide. Nothing here imports torch."""

from jsonargparse import ArgumentParser

from tsforecast.cli import names, parsing


def optimise() -> ArgumentParser:
    """Return the options of `tsforecast optimise`."""
    command = parsing.command_parser(
        "optimise",
        "Look for the least value of a function by draws from a network's belief (see docs/optimisation.md).",
    )
    command.add_argument(
        "function", nargs="?", metavar="FUNCTION", type=str, help=f"one of {', '.join(names.FUNCTIONS)}"
    )
    command.add_argument("--evaluations", type=int, default=100, help="in all, of FUNCTION")
    command.add_argument("--initial", type=int, default=10, help="Sobol points to begin with")
    command.add_argument("--seed", type=int, default=0, help="of all that is random")
    group = command.add_argument_group("a function of your own, instead of FUNCTION")
    group.add_argument("--trials", metavar="FILE", type=str, help="CSV that you fill in: the next points are new rows")
    group.add_argument(
        "--bounds",
        metavar="NAME:LOW:HIGH",
        type=str,
        nargs="+",
        help="columns of the file; :log behind it where factors count, :whole for whole numbers",
    )
    group.add_argument("--points", type=int, default=1, help="how many points are next")
    group.add_argument("--maximise", action="store_true", help="look for the largest value")
    group = command.add_argument_group("surrogate")
    group.add_argument("--learner", type=str, default="vd-ekf", help=", ".join(names.OF_NUMBERS))
    group.add_argument("--hidden", type=int, nargs="+", default=[300], help="widths of hidden layers")
    group.add_argument("--variance", type=float, default=0.1, help="of a weight of the last layer in the prior")
    group.add_argument(
        "--scale", type=float, default=2.0, help="of the first layer: larger for functions that bend more"
    )
    group.add_argument("--noise", type=float, default=1e-3, help="variance of standardised values around the function")
    group.add_argument("--rank", type=int, default=10, help="of lofi and lrkf")
    group.add_argument("--settings", type=parsing.JSON, default=None, help="more of the learner's constructor")
    group = command.add_argument_group("trust region")
    group.add_argument("--patience", type=int, default=6, help="points that are not better, after which it halves")
    group.add_argument("--neighbours", type=int, default=20, help="values that the surrogate is fitted to, at least")
    group = command.add_argument_group("run")
    group.add_argument("--output", metavar="RUN", type=str, help="run folder; default: outputs/LEARNER-FUNCTION-TIME")
    group.add_argument("--resume", metavar="RUN", type=str, help="go on with a run that was stopped")
    return command
