"""How models are put together: of parts, by final classes, in two files."""

import ast
import inspect
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from tests.models.cases import make_batch, make_entries
from tsforecast.forecasting.estimator import StateSpaceEstimator
from tsforecast.forecasting.predictor import load_predictor, save_predictor
from tsforecast.models import DATA_DECIDED, MODELS, make_model, options_of
from tsforecast.models.parts.dense import DenseSwitch

ROOT = Path(__file__).parents[2]


def with_ancestors(kind):
    return [cls for cls in kind.__mro__ if cls.__module__.startswith("tsforecast.models")]


@pytest.mark.parametrize("name", MODELS)
def test_no_concrete_method_is_overridden(name):
    """Of the model, its dynamics and its inference: a method is abstract, or final."""
    model = make_model(MODELS[name])
    for part in (model, model.dynamics, model.inference):
        concrete: set[str] = set()
        for cls in reversed(with_ancestors(type(part))):
            methods = inspect.isfunction, lambda value: isinstance(value, property | classmethod)
            own = {name for name, value in vars(cls).items() if any(is_one(value) for is_one in methods)}
            own = {name for name in own if not name.startswith("__")}
            assert not own & concrete, (cls, own & concrete)
            concrete |= {name for name in own if not getattr(vars(cls)[name], "__isabstractmethod__", False)}


def test_no_analysis_asks_which_inference_a_model_has():
    """It asks what an inference can do, so that a new one is one file."""
    concrete = {type(make_model(kind).inference).__name__ for kind in MODELS.values()}
    files = [*(ROOT / "tsforecast" / "analysis").glob("*.py"), *(ROOT / "tsforecast" / "plots").glob("*.py")]
    assert len(files) > 20
    for file in files:
        names = {node.id for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Name)}
        assert not names & concrete, file


@pytest.mark.parametrize("name", MODELS)
def test_constructors_spell_their_arguments(name):
    parameters = inspect.signature(MODELS[name]).parameters.values()
    assert len(parameters) <= 20
    assert {p.kind for p in parameters} <= {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}
    assert [cls.__name__ for cls in with_ancestors(MODELS[name])] == [MODELS[name].__name__, "AbstractForecaster"]
    documented = inspect.getdoc(MODELS[name])
    for parameter in parameters:
        assert f"    {parameter.name}: " in documented, parameter.name


@pytest.mark.parametrize("name", MODELS)
def test_hyperparameters_make_the_same_model(name):
    """All of them, side by side."""
    own = {"weights": "0.3,0.7"} if name == "pool" else {"learning_rate": 0.123}
    chosen = {**own, "clip": "none", "num_series": 2, "freq": "h"}
    model = make_model(MODELS[name], **chosen)
    again = make_model(MODELS[name], **model.hyperparameters)
    assert again.hyperparameters == model.hyperparameters
    assert {*model.hyperparameters} == {*options_of(MODELS[name])}
    assert chosen.items() <= model.hyperparameters.items()
    assert DATA_DECIDED - {"image_shape"} <= {*model.hyperparameters}


def test_an_option_that_is_not_known_is_refused():
    with pytest.raises(ValueError, match="GLSForecaster has no option 'depth'; it has cardinality, clip"):
        make_model(MODELS["gls"], depth=3)


def test_the_model_of_the_guide(monkeypatch, tmp_path):
    """It trains, forecasts, is saved and read by its name alone, and its likelihood is that of the joint Gaussian."""
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.S)
    scope: dict = {"__name__": "local_level"}
    exec(compile(block, "CONTRIBUTING.md", "exec"), scope)
    monkeypatch.setitem(MODELS, "local-level", scope["LocalLevelForecaster"])
    rng = np.random.default_rng(0)
    start = pd.Period("2024-01-01", "D")
    entries = [{"item_id": f"s{k}", "start": start, "target": rng.normal(size=40).cumsum()} for k in range(3)]
    options = {"max_epochs": 2, "enable_progress_bar": False, "accelerator": "cpu"}
    estimator = StateSpaceEstimator("local-level", "D", 5, learning_rate=0.05, seed=0, trainer_kwargs=options)
    predictor = estimator.train(entries)
    assert predictor.prediction_net.training_options.learning_rate == 0.05
    save_predictor(predictor, tmp_path / "saved")
    found = []
    for one in (predictor, load_predictor(tmp_path / "saved")):
        torch.manual_seed(0)
        found.append(np.stack([forecast.samples for forecast in one.predict(entries, num_samples=7)]))
    np.testing.assert_array_equal(*found)
    sizes = {"num_static_real": 1, "num_dynamic_real": 2, "num_time_features": 3, "num_series": 3, "season": 7}
    model = make_model(MODELS["local-level"], **sizes, cardinality=[3, 2], objective="likelihood").double()
    batch = make_batch(model, make_entries()[:1])
    past = torch.cat([batch["past_target"], batch["future_target"]], 1).double().flatten()
    location, scale = (x.flatten() for x in model.inference.scale_of(batch))
    time = torch.arange(1.0, len(past) + 1).double()
    level, noise = (2 * model.dynamics.log_scales.population.detach()).exp()
    cov = 1 + level * torch.minimum(time[:, None], time) + noise * torch.eye(len(past)).double()
    seen = torch.cat([batch["past_observed"], batch["future_observed"]], 1).flatten()
    joint = torch.distributions.MultivariateNormal(torch.zeros(int(seen.sum())).double(), cov[seen][:, seen])
    expected = -joint.log_prob(((past - location) / scale)[seen]) / seen.sum()
    torch.testing.assert_close(model.loss(batch)[0].detach(), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("name", "proposal"), [("sgls", "encoder"), ("rsgls", "encoder"), ("arsgls", "ladder")])
def test_the_options_of_a_dense_switch_are_one_record_and_options_by_name(name, proposal):
    model = make_model(MODELS[name], state_dim=3, switch_dim=2, persistence=0.5)
    assert model.records[-1] == DenseSwitch(state_dim=3, switch_dim=2, persistence=0.5, proposal=proposal)
    assert (model.hyperparameters["state_dim"], model.hyperparameters["proposal"]) == (3, proposal)
    with pytest.raises(ValueError, match="expected persistence to be at least 0 and below 1, got 1"):
        make_model(MODELS[name], persistence=1.0)


def test_the_model_of_the_guide_keeps_the_contract(tmp_path):
    """It is put where the guide says, into a copy of the package, and passes the contract tests of all models there."""
    for folder in ("tsforecast", "tests"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("bundled", "*.pyc.*"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.S)
    (tmp_path / "tsforecast" / "models" / "local_level.py").write_text(block)
    for path, before, after in (
        (
            "tsforecast/models/__init__.py",
            "MODELS: ",
            "from tsforecast.models.local_level import LocalLevelForecaster\n\nMODELS: ",
        ),
        (
            "tsforecast/models/__init__.py",
            '    "issm": ISSM',
            '    "local-level": LocalLevelForecaster,\n    "issm": ISSM',
        ),
        ("tests/models/cases.py", '    "gls": (', '    "local-level": ("local-level", {}),\n    "gls": ('),
    ):
        text = (tmp_path / path).read_text()
        assert before in text
        (tmp_path / path).write_text(text.replace(before, after, 1))
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:xdist",
        "-k",
        "local-level and not reads_what_it_is_told",
        "tests/models/test_contract.py",
    ]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) > 20
