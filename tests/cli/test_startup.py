"""Help and errors of usage come without torch, and parsers name what the tables behind them hold."""

import gc
import inspect
import json
import re
import subprocess
import sys
from dataclasses import MISSING
from importlib.metadata import version

import docstring_parser
import pytest

from tsforecast.cli import command_lines, commands, learning_commands, names, records
from tsforecast.cli.declared import declared
from tsforecast.cli.memory import imported
from tsforecast.data.catalog import CATALOG
from tsforecast.decisions import AGENTS, ENCODINGS, RULES, AgentConfig
from tsforecast.decisions.functions import FUNCTIONS
from tsforecast.decisions.tables import MADE
from tsforecast.decisions.tables import PREPARED as TABLES
from tsforecast.evaluation.baselines import BASELINES
from tsforecast.forecasting.adaptation import EVIDENCE, MEMORIES_OF_WINDOWS, Adaptation
from tsforecast.forecasting.engines import ENGINES
from tsforecast.forecasting.estimator import StateSpaceEstimator
from tsforecast.learners import DRIFTS, LEARNERS, WEIGHTS
from tsforecast.learners.memory.continual import MEMORIES
from tsforecast.models import MODELS, records_of
from tsforecast.online.config import ACTIVATIONS
from tsforecast.online.stream import PREPARED, STREAMS
from tsforecast.settings import AdaptationSettings, AgentSettings, DriftSettings, OutlierSettings

# The records that constructors of models take.
PARTS = {type(record) for model in MODELS.values() for record in records_of(model).values()}

# Each line is run in one process: what none of them imports is not imported.
LIGHT = (
    ["--help"],
    ["--version"],
    ["nothing"],
    *([command, "--help"] for command in command_lines.NAMES),
    *([command, "--nothing"] for command in command_lines.NAMES),
    *(["train", model, "--help"] for model in names.TRAINED),
    *(["train", model, "--nothing"] for model in names.TRAINED),
    ["train", "issm", "--learning_rate", "fast"],
    ["train", "issm", "--max_epochs", "0"],
    ["train", "nothing"],
    ["train"],
    ["tune", "nothing", "--study", "s"],
    ["tune", "issm", "--study", "s", "--nothing"],
    ["evaluate", "run", "--adapt", "nothing"],
    ["stream", "nothing", "--data", "digits"],
    ["stream", "--seed", "-1"],
    ["bandit", "--steps", "0"],
)

SCRIPT = """
import json, sys
from tsforecast.cli import main
for arguments in json.loads(sys.argv[1]):
    try:
        status = main(arguments)
    except SystemExit as ended:
        status = ended.code
    heavy = [name for name in ("torch", "lightning", "pandas", "gluonts", "matplotlib") if name in sys.modules]
    assert not heavy, (arguments, heavy)
    assert status == (0 if arguments[-1] in ("--help", "--version") else 2), (arguments, status)
"""


def test_help_and_errors_of_usage_import_no_torch():
    done = subprocess.run([sys.executable, "-c", SCRIPT, json.dumps(LIGHT)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_python_runs_the_package_as_the_command():
    done = subprocess.run([sys.executable, "-m", "tsforecast", "--version"], capture_output=True, text=True)
    assert done.stdout == f"tsforecast {version('tsforecast')}\n"


FORECAST = """
import sys
from tsforecast.cli import main
assert main(["forecast", "sales.csv", "--horizon", "6"]) == 0
heavy = {"lightning", "torchmetrics", "torch._dynamo", "sympy", "scipy", "statsforecast", "sklearn"}
assert not heavy & {*sys.modules}, heavy & {*sys.modules}
import tsforecast.cli.bandit, tsforecast.cli.optimise, tsforecast.cli.stream
assert not {"lightning", "gluonts.torch", "statsforecast"} & {*sys.modules}
"""


def test_forecasts_at_once_and_commands_of_learners_import_nothing_that_trains(tmp_path):
    months = [
        f"{2020 + month // 12}-{month % 12 + 1:02}-01,{100 + month + 9 * (month % 12 == 11)}" for month in range(36)
    ]
    (tmp_path / "sales.csv").write_text("\n".join(["date,sales", *months]))
    done = subprocess.run([sys.executable, "-c", FORECAST], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "sales-forecasts.csv").is_file()
    assert (tmp_path / "sales-forecasts.png").is_file()


@pytest.mark.parametrize(
    ("named", "table"),
    [
        (names.MODELS, MODELS),
        (names.DATASETS, CATALOG),
        (names.FUNCTIONS, FUNCTIONS),
        (names.STREAMS, STREAMS),
        (names.PREPARED, PREPARED),
        (names.AGENTS, AGENTS),
        (names.BANDITS, MADE),
        (names.BANDIT_TABLES, TABLES),
        (names.LEARNERS, LEARNERS),
        (names.OF_NUMBERS, [name for name, learner in LEARNERS.items() if learner.numbers]),
        (names.ACTIVATIONS, ACTIVATIONS),
        (names.WEIGHTS, WEIGHTS),
        (names.MEMORIES, MEMORIES),
        (names.BASELINES, BASELINES),
        (names.ENGINES, ENGINES),
    ],
)
def test_parsers_name_what_there_is(named, table):
    assert named == tuple(table)


@pytest.mark.parametrize(
    ("record", "option", "table"),
    [
        (DriftSettings, "drift", ("auto", *DRIFTS)),
        (OutlierSettings, "weight", WEIGHTS),
        (AdaptationSettings, "evidence", EVIDENCE),
        (AdaptationSettings, "memory", MEMORIES_OF_WINDOWS),
        (AgentSettings, "rule", ("auto", *RULES)),
        (AgentSettings, "encoding", ENCODINGS),
        (AgentSettings, "activation", ACTIVATIONS),
        (AgentSettings, "drift", DRIFTS),
    ],
)
def test_settings_name_what_there_is(record, option, table):
    texts = {entry.arg_name: entry.description for entry in docstring_parser.parse(record.__doc__).params}
    assert set(re.findall(r'"(\w+)"', texts[option])) == {*table}


def test_an_option_says_what_the_setting_of_its_name_says():
    """One declaration: commands have defaults and help of the record that the constructor has."""
    command = records.parser_of("bandit", learning_commands.Bandit)
    noise = next(action for action in command._actions if action.dest == "noise")
    assert noise.default == AgentConfig.noise == AgentSettings.noise
    assert noise.help == "variance of a reward, in the units of rewards, of a learner"


@pytest.mark.parametrize("made", [*MODELS.values(), StateSpaceEstimator, *sorted(PARTS, key=str)])
def test_the_source_declares_what_the_class_has(made):
    source = declared(made.__module__, made.__name__)
    assert source is not made
    assert inspect.getdoc(source) == inspect.getdoc(made)
    assert _parameters(source) == _parameters(made)


def _parameters(made):
    """Parameters with their annotations and defaults, but for the modules of these and `**hyperparameters`."""
    known = inspect.signature(made).parameters.values()
    return [re.sub(r"\b[a-z]\w*\.", "", str(given)) for given in known if given.kind is not given.VAR_KEYWORD]


def test_a_name_that_the_source_does_not_declare():
    with pytest.raises(LookupError, match="models to declare nothing"):
        declared("tsforecast.models", "nothing")


def test_a_table_of_another_name_is_not_there():
    with pytest.raises(AttributeError, match="no attribute 'LEARNER'"):
        getattr(names, "LEARNER")  # noqa: B009


def test_defaults_of_evaluate_are_those_of_an_adaptation():
    chosen = commands.Evaluate(run="run")
    for name in ("drift", "rate", "variance", "rank", "evidence"):
        assert getattr(chosen, name) == getattr(Adaptation, name), name


@pytest.mark.parametrize("command", command_lines.NAMES)
def test_no_help_shows_code(command):
    parser = command_lines.parser_of(command)
    texts = [parser.format_help()]
    if command == "train":
        models = next(action for action in parser._actions if isinstance(action.choices, dict))
        texts += [model.format_help() for model in models.choices.values()]
        assert len(texts) == 1 + len(names.TRAINED)
    assert not [text for text in texts if any(code in text for code in ("<function", "<lambda>", "<class"))]


WRONG = (
    (["train", "auto", "--data", "missing.csv"], "there is no file missing.csv"),
    (["train", "issm", "--data=missing.csv"], "there is no file missing.csv"),
    (["tune", "issm", "--study", "s", "--data", "missing.csv"], "there is no file missing.csv"),
    (["train", "auto", "--data", "words.csv"], "no column looks like time stamps"),
    (["train", "auto", "--data", "sales.csv", "--target", "turnover"], "there is no column 'turnover'"),
    (["train", "auto", "--data", "noise.parquet"], "not readable as Parquet"),
    (["train", "auto", "--data", "empty.csv"], "the file is empty"),
    (["impact", "missing.csv", "--after", "2024-01-03"], "there is no file missing.csv"),
    (["anomalies", "--data", "missing.csv"], "there is no file missing.csv"),
    *(
        ([command, "missing", "--output", "f.csv"], "there is no run folder missing")
        for command in ("predict", "impute")
    ),
    *(([command, "missing"], "there is no run folder missing") for command in ("evaluate", "regimes", "explain")),
    (["explain", "sales.csv"], "sales.csv is a file, and no run folder: `tsforecast train --data sales.csv` makes one"),
    (["anomalies", "sales.csv"], "makes one; or give the file as --data"),
    (["stream", "--resume", "missing"], "there is no run folder missing"),
)

REFUSED = """
import json, sys
from tsforecast.cli import main
for arguments in json.loads(sys.argv[1]):
    assert main(arguments) == 2, arguments
    heavy = [name for name in ("torch", "lightning", "gluonts", "matplotlib") if name in sys.modules]
    assert not heavy, (arguments, heavy)
"""


def test_files_that_are_missing_or_wrong_are_named_without_torch(tmp_path):
    (tmp_path / "words.csv").write_text("a,b\nx,y\nz,w\n")
    (tmp_path / "sales.csv").write_text("date,sales\n2024-01-01,1\n2024-01-02,2\n")
    (tmp_path / "noise.parquet").write_bytes(b"noise")
    (tmp_path / "empty.csv").write_text("")
    commands = json.dumps([arguments for arguments, _ in WRONG])
    done = subprocess.run([sys.executable, "-c", REFUSED, commands], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    said = done.stderr.splitlines()
    assert len(said) == len(WRONG)
    for line, (arguments, fault) in zip(said, WRONG, strict=True):
        assert fault in line, (arguments, line)


@pytest.mark.parametrize("name", commands.RECORDS)
def test_parsers_have_the_defaults_and_options_of_the_records(name):
    record = commands.RECORDS[name]
    parser = command_lines.parser_of(name)
    fields = {field.name: field for field in records.options_of(record)}
    assert {action.dest for action in parser._actions} - {"help"} == {*fields}
    required = {key: "x" for key, field in fields.items() if field.default is field.default_factory is MISSING}
    chosen = record(**required)
    for action in parser._actions:
        if action.dest in fields and action.dest not in required:
            assert action.default == getattr(chosen, action.dest), action.dest


def test_modules_are_imported_without_a_search_for_garbage(tmp_path, monkeypatch):
    (tmp_path / "looks_at_gc.py").write_text("import gc\n\nIS_ON = gc.isenabled()\n")
    monkeypatch.syspath_prepend(tmp_path)
    before = gc.get_freeze_count()
    found = imported("looks_at_gc")
    assert not found.IS_ON
    assert gc.isenabled()
    assert gc.get_freeze_count() > before
    assert imported("looks_at_gc") is found
