"""What every forecaster promises. Those with particles draw random numbers: what is exact holds for the same ones."""

import dataclasses
import math
import warnings

import lightning.pytorch as pl
import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils import _pytree as pytree

from tests.models.cases import (
    BANKS,
    CASES,
    CATEGORICAL,
    DISTINCT,
    FEW,
    HORIZON,
    JOINT,
    LINEAR,
    MARKOV,
    POOLS,
    REAL,
    SWITCHING,
    entries_of,
    linear_of,
    make_batch,
    make_model,
    resampling_below,
    without,
)
from tests.models.noise import no_noise, shared_noise
from tsforecast.core import Gaussian
from tsforecast.core.regimes import collapse
from tsforecast.forecasting.lightning_module import ForecasterInTraining
from tsforecast.models import FORMAT, INPUT_NAMES, MODELS, Belief, ExactInference, Series
from tsforecast.models.parts.bank_inference import BankInference
from tsforecast.models.parts.joint_inference import JointInference
from tsforecast.models.parts.markov_inference import MarkovInference
from tsforecast.models.parts.pool_inference import PoolInference
from tsforecast.models.records import BankState, JointState, PoolState

pytestmark = pytest.mark.usefixtures("unchecked_module")  # tests of each model look at types

EXACT = {"rtol": 1e-9, "atol": 1e-9}
SHORT = {"lengths": (10, 9, 8)}  # where the length of a history does not matter: it takes most of the time
SCALED = [case for case in FEW if case not in BANKS + POOLS]  # with options of scaling


@pytest.fixture(params=CASES)
def case(request):
    return request.param


def model_and_entries(case, **options):
    return make_model(case, **options), entries_of(case)


def seeded(function, *arguments, seed=0):
    torch.default_generator.manual_seed(seed)  # what waits for devices to begin notes the whole stack each time
    return function(*arguments)


def known_future(model, case, steps=(1, 3)):
    """Some steps of the horizon, with values that the data could have."""
    known = np.full((model.data.num_targets, HORIZON), np.nan, np.float32)
    known[:, steps] = np.where(np.arange(len(steps)) % 2, 0.3, 1.7) if case in REAL else np.arange(len(steps)) % 2
    return known if model.data.num_targets > 1 else known[0]


def compare_series(mine, its, k):
    """The first series of a record is the k-th of another one; tensors of states have particles before the series."""

    def compare(a, b):
        if a is not None:
            at = 0 if a.ndim == 1 or isinstance(mine.state, Gaussian | BankState) else 1
            torch.testing.assert_close(a.select(at, 0), b.select(at, k), **EXACT)

    if isinstance(mine.state, JointState):
        for name in ("products", "weight"):
            one, other = (getattr(x.state.correlation, name) for x in (mine, its))
            torch.testing.assert_close(one[0], other[k], **EXACT)
    if isinstance(mine.state, PoolState | JointState):
        for one, other in zip(mine.state.members, its.state.members, strict=True):
            compare_series(one, other, k)
    else:
        pytree.tree_map(compare, mine.state, its.state)
    for name in ("location", "scale"):
        torch.testing.assert_close(getattr(mine, name)[0], getattr(its, name)[k], **EXACT)


def test_the_cases_cover_every_model():
    assert {name for name, _ in CASES.values()} == set(MODELS)


def test_gradients_reach_every_parameter(case):
    model, entries = model_and_entries(case)
    seeded(model.loss, make_batch(model, entries)).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name
        assert (parameter.grad != 0).any(), name
        if name.endswith("population"):
            assert (parameter.grad != 0).all()
        if name.endswith(".series"):
            assert (parameter.grad != 0).any(1).all()
        if name.endswith("embedding.weight"):
            assert (parameter.grad != 0).any(1).tolist() == [False, True, True, True]


UNNAMED = {"num_series": 0}
BARE = {"cardinality": [], "num_static_real": 0, "num_dynamic_real": 0}
YEARS = {**UNNAMED, **BARE, "freq": "Y-DEC", "num_time_features": 0}


UNUSED = [
    *(pytest.param(case, YEARS, id=f"{case}-years") for case in CASES),
    *(pytest.param(case, UNNAMED, id=f"{case}-unnamed") for case in (*FEW, "kvae-rb")),
    *(pytest.param(case, BARE, id=f"{case}-bare") for case in (*FEW, "kvae-rb")),
]


@pytest.mark.parametrize(("case", "sizes"), UNUSED)
def test_parameters_that_are_not_used_are_not_made(case, sizes):
    """Series without names, without covariates, and with neither a calendar nor seasons."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # torch's, of layers without inputs
        model = make_model(case, **sizes)
    entries = [{**e, "start": pd.Period("2000", model.data.freq)} for e in entries_of(case)]
    seeded(model.loss, make_batch(model, entries)).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.numel() > 0, name
        assert parameter.grad is not None, name
        assert (parameter.grad != 0).any(), name


@pytest.mark.parametrize("case", [case for case in (*LINEAR, *BANKS, *POOLS) if case not in JOINT])
def test_the_members_of_a_linear_mixture_are_the_components_of_its_forecast(case):
    """By the forecast of each member's own system."""
    model, entries = model_and_entries(case)
    linear, batch = model.inference.linear, make_batch(model, entries[:1], train=False)
    if linear is None:
        assert case in POOLS
        assert any(member.linear is None for member in model.inference.members)
        return
    belief = linear.filter(batch)[0]
    pytree.tree_map(
        lambda a, b: torch.testing.assert_close(a, b, **EXACT),
        linear.filter(batch, linear.begin(batch, batch))[0],
        belief,
    )
    marginals = linear.marginals(belief, batch)
    for apart in (False, True):
        means, counts = [], []
        for member in linear.members_of(batch, "future", belief, apart):
            steps = member.model.system.marginals(member.model.prior, HORIZON).mean * member.scale + member.location
            means += [steps[:, row] for row in range(steps.shape[1]) for _ in range(member.components)]
            counts += [member.components] * steps.shape[1]
        torch.testing.assert_close(torch.stack(means).double(), marginals.mean[0], **EXACT)
        weights = torch.cat([weight[0] for weight in linear.weights(belief)])
        each = torch.cat([(w / count).expand(count) for w, count in zip(weights, counts, strict=True)])
        torch.testing.assert_close(each.double(), marginals.log_weight[0].exp(), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("case", SWITCHING + MARKOV)
def test_a_model_with_a_switch_is_no_linear_mixture(case):
    assert make_model(case).inference.linear is None


def test_a_series_alone_equals_itself_in_a_batch(case, monkeypatch):
    """Beside longer ones, which it is padded for."""
    model, entries = model_and_entries(case)
    together = make_batch(model, entries)
    assert together["past_is_pad"].any()
    no_noise(monkeypatch)
    loss, (belief, terms) = model.loss(together), model.filter(together)
    paths = model.forecast(belief, together, 2)
    for k in (0, 1, 2) if case in LINEAR + MARKOV else (2,):
        alone = make_batch(model, [entries[k]])
        torch.testing.assert_close(model.loss(alone)[0], loss[k], **EXACT)
        belief_alone, terms_alone = model.filter(alone)
        torch.testing.assert_close(terms_alone[:, 0], terms[-len(terms_alone) :, k], **EXACT)
        torch.testing.assert_close(terms[: -len(terms_alone), k], torch.zeros_like(terms[: -len(terms_alone), k]))
        compare_series(belief_alone, belief, k)
        torch.testing.assert_close(model.forecast(belief_alone, alone, 2)[0], paths[k], **EXACT)


@pytest.mark.parametrize("case", SWITCHING)
def test_particles_of_a_series_alone_are_those_in_a_batch(case, monkeypatch):
    """Weights, ancestors and paths, with the same random numbers for all series."""
    model, entries = model_and_entries(case, num_particles=6)
    if not case.startswith("kvae"):  # whose samples of q are not resampled
        resampling_below(model, 0.8)
    together = make_batch(model, entries, past=4)
    assert not together["past_is_pad"].any()
    shared_noise(monkeypatch, 1)
    loss = model.loss(together)
    belief, terms = model.filter(together)
    assert (belief.state.switch.std(0) > 0).any()
    paths = model.forecast(belief, together, 3)
    shared_noise(monkeypatch, 1)
    alone = make_batch(model, entries[1:2], past=4)
    torch.testing.assert_close(model.loss(alone)[0], loss[1], **EXACT)
    belief_alone, terms_alone = model.filter(alone)
    torch.testing.assert_close(terms_alone[:, 0], terms[:, 1], **EXACT)
    compare_series(belief_alone, belief, 1)
    if case in REAL and case != "arsgls-student-t":  # the other decoders draw in their own way
        torch.testing.assert_close(model.forecast(belief_alone, alone, 3)[0], paths[1], **EXACT)


@pytest.mark.parametrize("case", FEW)
def test_a_history_shorter_than_a_season_is_scaled_as_if_alone(case):
    model = make_model(case)
    entries = entries_of(case, lengths=(30, 13))
    entries[1]["target"] = np.random.default_rng(0).normal(size=entries[1]["target"].shape).astype(np.float32)
    _, scale = model.inference.scale_of(make_batch(model, entries))
    torch.testing.assert_close(model.inference.scale_of(make_batch(model, entries[1:]))[1][0], scale[1], **EXACT)
    values = model.units.transform(torch.as_tensor(np.atleast_2d(entries[1]["target"])[:, :-HORIZON]).double())
    torch.testing.assert_close(scale[1], values.diff().abs().mean(1), rtol=1e-6, atol=0)


def test_what_stands_at_a_missing_value_has_no_influence(case):
    model, entries = make_model(case), entries_of(case, **SHORT)
    batch = make_batch(model, [without(entry, 3, 4, -2) for entry in entries])
    other = {**batch}
    for part in ("past", "future"):
        target, observed = batch[f"{part}_target"], batch[f"{part}_observed"]
        other[f"{part}_target"] = torch.where(observed, target, 1e6)
    with torch.no_grad():
        loss = seeded(model.loss, batch)
        assert torch.equal(loss, seeded(model.loss, other))
        assert not torch.equal(loss, seeded(model.loss, make_batch(model, entries)))


def start_of(inference, batch):
    """The belief before the first step."""
    if isinstance(inference, JointInference):
        return inference.begin(batch)
    location, scale = inference.scale_of(batch)
    time_slice = inference.slice_of(batch, "past")
    if isinstance(inference, PoolInference):
        state = PoolState(tuple(start_of(member, own) for member, own in inference.each(batch)))
    elif isinstance(inference, BankInference):
        state = inference.members.beginning(time_slice, Series.of(batch))
    elif isinstance(inference, MarkovInference):
        state = inference.beginning(inference.dynamics.markov(time_slice, Series.of(batch)))
    elif isinstance(inference, ExactInference):
        _, state = linear_of(inference, time_slice, batch)
    else:
        system, prior = inference.dynamics.switching(time_slice, Series.of(batch), location, scale, proposing=False)
        count = inference.particles.num_particles
        state = collapse.begin(system, prior) if inference.is_collapsed else system.begin(count, prior)
    return Belief(state, location, scale, Series.of(batch))


def test_filtering_on_equals_filtering_at_once(case):
    """With random numbers that go on, too."""
    model, entries = make_model(case), entries_of(case, **SHORT)
    batch = make_batch(model, entries[:1])
    start = start_of(model.inference, batch)
    whole, terms = seeded(model.filter, batch, start)
    past = [name for name in batch if name.startswith("past_")]
    first = {**batch, **{name: batch[name][:, :5] for name in past}}
    second = {**batch, **{name: batch[name][:, 5:] for name in past}}
    middle, terms_first = seeded(model.filter, first, start)
    end, terms_second = model.filter(second, middle)
    assert torch.equal(end.scale, start.scale)
    torch.testing.assert_close(torch.cat([terms_first, terms_second]), terms, **EXACT)
    compare_series(end, whole, 0)
    begun, _ = seeded(model.filter, batch)
    compare_series(begun, whole, 0)


def difficult(entry):
    """Name -> the entry with a difficult history."""
    target = np.array(entry["target"])
    length = target.shape[-1]
    gap, late = target.copy(), target.copy()
    gap[..., -12:] = np.nan
    late[..., :-1] = np.nan
    last = {**entry, "feat_dynamic_real": entry["feat_dynamic_real"][:, length - 1 :]}
    ones = np.ones_like(target)
    return {
        "gap": {**entry, "target": gap},
        "missing": {**entry, "target": np.nan * ones},
        "one value": {**entry, "target": late},
        "constant": {**entry, "target": 5 * ones},
        "zero": {**entry, "target": 0 * ones},
        "one step": {**last, "target": ones[..., -1:]},
        "one missing step": {**last, "target": np.nan * ones[..., -1:]},
    }


@pytest.mark.parametrize(
    ("case", "dtype"), [(case, torch.float32) for case in DISTINCT] + [(case, torch.float64) for case in FEW]
)
def test_difficult_histories_give_finite_forecasts(case, dtype):
    model = make_model(case).to(dtype)
    histories = difficult(entries_of(case, lengths=(18,))[0])
    if case.endswith("binary"):
        histories["constant"]["target"] /= 5
    batch = make_batch(model, [*histories.values()], train=False)
    single = make_batch(model, [histories["one step"]], train=False)  # without padding
    with torch.no_grad():
        belief, terms = seeded(model.filter, batch)
        samples = model.forecast(belief, batch, 20)
        alone = model.forecast(model.filter(single)[0], single, 20)
    assert samples.shape == (len(histories), 20, HORIZON, model.data.num_targets)
    assert (belief.scale.dtype, terms.dtype, samples.dtype) == (dtype, dtype, torch.float64)  # digits are the data's
    for name, paths, term in zip(histories, samples, terms.T, strict=True):
        assert torch.isfinite(paths).all(), name
        assert torch.isfinite(term).all(), name
        if name == "constant" and case in LINEAR and model.units.transformation == "none":
            assert ((paths - 5).abs() < 50).all()  # far from the units' origin, it stays near its level
        if name.endswith("missing"):
            torch.testing.assert_close(term, torch.zeros_like(term), rtol=0, atol=1e-5)
    assert torch.isfinite(alone).all()


@pytest.mark.parametrize("case", DISTINCT)
def test_gradients_of_difficult_histories_are_finite(case):
    model = make_model(case)
    entries = entries_of(case, lengths=(18, 18, 18))
    future = entries[0]["target"][..., -HORIZON:]
    histories = [
        {**e, "target": np.concatenate([e["target"], future], -1)[..., : -2 * HORIZON]}
        for e in difficult({**entries[0], "target": entries[0]["target"][..., :-HORIZON]}).values()
        if e["target"].shape[-1] > HORIZON
    ]
    seeded(model.loss, make_batch(model, histories)).sum().backward()
    for name, parameter in model.named_parameters():
        assert torch.isfinite(parameter.grad).all(), name


@pytest.mark.parametrize("case", FEW)
def test_forward_gives_what_gluonts_expects(case):
    model, entries = model_and_entries(case)
    batch = make_batch(model, entries, train=False)
    torch.manual_seed(3)
    samples = model(**{name: batch[name] for name in INPUT_NAMES}, num_samples=7)
    torch.manual_seed(3)
    expected = model.forecast(model.filter(batch)[0], batch, 7)
    assert torch.equal(samples, expected if model.data.num_targets > 1 else expected[..., 0])


@pytest.mark.parametrize(
    ("case", "transformation"),
    [(case, "none") for case in DISTINCT]
    + [(case, name) for case in FEW if case not in BANKS for name in ("log1p", "asinh")],
)
def test_known_values_come_back_exactly(case, transformation):
    model, entries = model_and_entries(case, **({} if case in BANKS else {"transformation": transformation}))
    known = known_future(model, case)
    batch = make_batch(model, [{**entries[1], "known_future": known}], train=False)
    with torch.no_grad():
        samples = model.forecast(seeded(model.filter, batch)[0], batch, 40)
    fixed = torch.as_tensor(np.atleast_2d(known).T)
    assert (samples[:, :, [1, 3]] == fixed[[1, 3]]).all()
    assert torch.isfinite(samples).all()
    assert (samples[:, :, [0, 2]].std(1) > 0).all()


@pytest.mark.parametrize("case", DISTINCT)
def test_an_unknown_series_is_the_population(case):
    model, entries = make_model(case), entries_of(case, **SHORT)
    stranger = make_batch(model, [{**entries[1], "item_id": "new"}])
    assert stranger["series_index"].item() == 0
    loss = seeded(model.loss, stranger)
    assert model.dynamics.is_pooled or not torch.allclose(loss, seeded(model.loss, make_batch(model, [entries[1]])))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith((".series", "embedding.weight")):
                parameter.zero_()
    torch.testing.assert_close(seeded(model.loss, make_batch(model, [entries[1]])), loss, **EXACT)


@pytest.mark.parametrize("case", FEW)
def test_the_model_reads_what_it_is_told(case):
    """Everything that a batch says of a step matters to networks, and to linear models what is part of them."""
    model, entries = model_and_entries(case)
    batch = make_batch(model, entries)
    unread = (
        {"time_feat", "static_real"}
        if case in [*BANKS, *POOLS, *LINEAR, *MARKOV, *JOINT] and case not in ("issm-network", "deepstate")
        else set()
    )
    unread |= {"season_index"} if case.startswith(("gls", "markov")) and not model.dynamics.season_names else set()
    with torch.no_grad():
        loss = seeded(model.loss, batch)
        for field in ("time_feat", "season_index", "dynamic_real", "static_cat", "static_real"):
            changed = {**batch}
            for name in {field, f"past_{field}", f"future_{field}"} & batch.keys():
                value = batch[name]
                changed[name] = value + 0.5 if value.is_floating_point() else (value + 1) % 2
            assert torch.equal(seeded(model.loss, changed), loss) == (field in unread), field


@pytest.mark.parametrize("transformation", ["log1p", "asinh"])
@pytest.mark.parametrize("case", SCALED)
def test_transformations(case, transformation):
    model, entries = model_and_entries(case, transformation=transformation)
    values = torch.tensor([-0.5, 0.0, 1e-3, 7.0, 1e6], dtype=torch.float64)
    expected = torch.log1p(values) if transformation == "log1p" else torch.asinh(values)
    torch.testing.assert_close(model.units.transform(values), expected)
    torch.testing.assert_close(model.units.restore(model.units.transform(values)), values)
    assert torch.isfinite(model.units.restore(torch.tensor([-1e9, 1e9]))).all()
    one = torch.ones((), dtype=torch.float64)
    torch.testing.assert_close(model.units.restore(model.units.transform(values), one), values)
    bound = math.log(2e6)
    inverse, slope = (math.expm1, math.exp) if transformation == "log1p" else (math.sinh, math.cosh)
    far = torch.tensor([20.0, 60.0], dtype=torch.float64)
    torch.testing.assert_close(model.units.restore(far, one), inverse(bound) + slope(bound) * (far - bound))
    shifted = [{**entry, "target": np.abs(entry["target"])} for entry in entries]
    other = make_model(case, transformation="none")
    batch = make_batch(model, shifted)
    transform, names = model.units.transform, ("past_target", "future_target")
    changed = {**batch, **{name: transform(batch[name].double()) for name in names}}
    for mine, its in zip(model.inference.scale_of(batch), other.inference.scale_of(changed), strict=True):
        torch.testing.assert_close(mine, its, **EXACT)
    mine, its = (seeded(m.filter, b)[1] for m, b in ((model, batch), (other, changed)))
    torch.testing.assert_close(mine, its, **EXACT)


@pytest.mark.parametrize("case", [*(case for case in FEW if case not in POOLS), "rsgls", "arsgls-student-t"])
def test_the_scale_is_that_of_the_target(case):
    """In units of a thousandth a series has the same likelihood, and its forecast a thousandfold."""
    shift = 0 if case in BANKS else 5
    model, entries = model_and_entries(case, **({} if case in BANKS else {"transformation": "none"}))
    batch = make_batch(model, entries)
    larger = {**batch, **{f"{p}_target": 1000 * batch[f"{p}_target"].double() + shift for p in ("past", "future")}}
    with torch.no_grad():
        torch.testing.assert_close(seeded(model.loss, larger), seeded(model.loss, batch), rtol=1e-6, atol=1e-6)
        beliefs = [seeded(model.filter, b)[0] for b in (batch, larger)]
        for known in (torch.nan, 1.5):
            batch["known_future"][:, 1] = known
            larger["known_future"] = 1000 * batch["known_future"] + shift
            mine, its = (seeded(model.forecast, *x, 3) for x in zip(beliefs, (batch, larger), strict=True))
            torch.testing.assert_close(its, 1000 * mine + shift, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("case", [*SCALED, "rsgls", "arsgls-student-t"])
def test_without_scaling_the_values_stay_as_they_are(case):
    """What a model does with location 0 and scale 1 is what scaling does to values which it has scaled already."""
    model, entries = model_and_entries(case, transformation="none")
    plain = make_model(case, transformation="none", scaling="none")
    batch = make_batch(model, entries)
    location, scale = (x.unsqueeze(1) for x in model.inference.scale_of(batch))
    targets = {name: batch[name] for name in ("past_target", "future_target")}
    shape = location.shape if batch["past_target"].dim() == 3 else location.shape[:2]
    standard = {name: (value - location.view(shape)) / scale.view(shape) for name, value in targets.items()}
    standard = {**batch, **standard}
    assert all((x == y).all() for x, y in zip(plain.inference.scale_of(batch), (0, 1), strict=True))
    with torch.no_grad():
        torch.testing.assert_close(seeded(plain.loss, standard), seeded(model.loss, batch), **EXACT)
        assert not torch.allclose(seeded(plain.loss, batch), seeded(model.loss, batch))
        mine, its = (seeded(m.filter, b)[0] for m, b in ((model, batch), (plain, standard)))
        mine, its = (seeded(m.forecast, *x, 3) for m, *x in ((model, mine, batch), (plain, its, standard)))
    torch.testing.assert_close(mine, its * scale.unsqueeze(1) + location.unsqueeze(1))


@pytest.mark.parametrize("case", FEW)
def test_clipping(case):
    model, entries = model_and_entries(case, clip="nonnegative")
    batch = make_batch(model, [{**entries[0], "target": entries[0]["target"] - 1}], train=False)
    belief, _ = seeded(model.filter, batch)
    clipped = seeded(model.forecast, belief, batch, 50)
    free = seeded(make_model(case).forecast, belief, batch, 50)
    assert (free < 0).any()
    assert torch.equal(clipped, free.clamp_min(0))


@pytest.mark.parametrize("case", DISTINCT)
def test_forecasts_draw_from_the_given_generator(case):
    """All that is random in a forecast comes from it."""
    model, entries = model_and_entries(case)
    batch = make_batch(model, entries, train=False, past=3)
    with torch.no_grad():
        belief, _ = seeded(model.filter, batch)
        given = {**batch, "known_future": batch["known_future"].clone()}
        given["known_future"][:, 1] = 1.0
        state = torch.get_rng_state()
        some, other = (model.forecast(belief, batch, 4, torch.Generator().manual_seed(seed)) for seed in (5, 6))
        known, again = (model.forecast(belief, given, 4, torch.Generator().manual_seed(5)) for _ in range(2))
    assert torch.equal(state, torch.get_rng_state())
    assert not torch.equal(some, other)
    assert torch.equal(known, again)


@pytest.mark.parametrize("case", FEW)
@pytest.mark.filterwarnings("ignore")  # Lightning's about our loader
def test_checkpoints_load_without_running_code(case, tmp_path):
    model, entries = model_and_entries(case)
    model = model.float()
    in_training = ForecasterInTraining(model)
    in_training.configure_optimizers = lambda: torch.optim.SGD(model.parameters(), lr=1e-4)
    trainer = pl.Trainer(
        default_root_dir=tmp_path, max_epochs=1, accelerator="cpu", logger=False, enable_progress_bar=False,
        enable_model_summary=False, enable_checkpointing=False,
    )  # fmt: skip
    batch = {name: value for name, value in make_batch(model, entries).items() if isinstance(value, torch.Tensor)}
    trainer.fit(in_training, torch.utils.data.DataLoader([batch], batch_size=None))
    trainer.save_checkpoint(tmp_path / "some.ckpt")
    assert torch.load(tmp_path / "some.ckpt", weights_only=True)["tsforecast_format"] == FORMAT
    again = type(model).load_from_checkpoint(tmp_path / "some.ckpt")
    assert again.hyperparameters == model.hyperparameters
    model.train(again.training)
    assert torch.equal(seeded(again.loss, batch), seeded(model.loss, batch))
    paths = [seeded(lambda m: m.forecast(m.filter(batch)[0], batch, 3), m) for m in (model, again)]
    assert torch.equal(*paths)


@pytest.mark.parametrize("case", DISTINCT)
def test_the_same_seed_gives_the_same_model_and_loss(case):
    batch = make_batch(make_model(case), entries_of(case), past=3)
    losses = [
        seeded(make_model(case, seed).loss, batch, seed=draws) for seed, draws in ((0, 0), (0, 0), (1, 0), (0, 1))
    ]
    assert torch.equal(losses[0], losses[1])
    assert not torch.equal(losses[0], losses[2])
    assert torch.equal(losses[0], losses[3]) == (case not in SWITCHING or case in CATEGORICAL)


@pytest.mark.parametrize("case", FEW)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"transformation": "cbrt"}, "log1p"),
        ({"scaling": "mean"}, "series"),
        ({"clip": "yes"}, "auto"),
        ({"objective": "mse"}, "likelihood, crps"),
    ],
)
def test_unknown_choices_are_refused(case, options, message):
    if case in POOLS and "objective" in options:  # which is one of its members
        options = {"members": "issm objective=mse", "weights": "equal"}
    if case in BANKS and not options.keys() <= {"clip", "objective"}:
        options, message = {f"{name}s": value for name, value in options.items()}, "s"
    with pytest.raises(ValueError, match=message):
        make_model(case, **options)


@pytest.mark.parametrize("case", FEW)
def test_a_loss_that_is_not_finite_stops_the_training(case, monkeypatch):
    model, entries = model_and_entries(case)
    monkeypatch.setattr(model, "loss", lambda batch: torch.full((3,), torch.nan))
    with pytest.raises(FloatingPointError, match="learning_rate"):
        ForecasterInTraining(model).training_step(make_batch(model, entries), 0)


def test_a_gradient_that_is_not_finite_stops_the_training_before_it_is_taken():
    model, entries = model_and_entries("gls")
    in_training = ForecasterInTraining(model)
    in_training.training_step(make_batch(model, entries), 0).backward()
    optimizer = torch.optim.SGD(model.parameters())
    in_training.on_before_optimizer_step(optimizer)
    model.dynamics.emission.grad[0, 0] = torch.inf
    with pytest.raises(FloatingPointError, match="gradient of the training loss became inf at step 0"):
        in_training.on_before_optimizer_step(optimizer)


@pytest.mark.parametrize("case", ["gls", "rsgls"])
def test_what_training_draws_follows_from_the_seed(case, monkeypatch):
    losses = {}
    for seed in (None, 3, 4):
        model, entries = model_and_entries(case)
        model.training_options = dataclasses.replace(model.training_options, seed=seed)
        in_training = ForecasterInTraining(model)
        monkeypatch.setattr(in_training, "log", lambda *_, **__: None)
        batch = make_batch(model, entries)
        torch.manual_seed(0)
        state = torch.get_rng_state()
        steps = [(in_training.training_step, 0), (in_training.training_step, 1), (in_training.validation_step, 0)]
        losses[seed] = [step(batch, index).item() for step, index in steps]
        untouched = torch.equal(state, torch.get_rng_state())
        assert untouched == (case == "gls" or seed is not None)
        torch.manual_seed(1)
        again = [step(batch, index).item() for step, index in steps]
        assert (losses[seed] == again) == untouched
        assert len(set(losses[seed])) == (1 if case == "gls" else 3)
    assert (losses[3] == losses[4]) == (case == "gls")


@pytest.mark.parametrize("case", DISTINCT)
def test_what_is_observed_comes_back_from_imputation(case):
    model, entries = make_model(case), entries_of(case, **SHORT)
    batch = make_batch(model, [without(entries[0], 4, 5)], train=False)
    seen = batch["past_observed"]
    with torch.no_grad():
        samples = model.impute(batch, 5, torch.Generator().manual_seed(0))
        again = model.impute(batch, 5, torch.Generator().manual_seed(0))
    assert samples.shape == (1, 5, *seen.shape[1:])
    assert torch.equal(samples, again)
    assert torch.isfinite(samples).all()
    wide = seen.unsqueeze(1).expand(samples.shape)
    expected = batch["past_target"].to(samples.dtype).unsqueeze(1).expand(samples.shape)
    assert torch.equal(samples[wide], expected[wide])
    assert not torch.equal(samples[:, 0], samples[:, 1])


@pytest.mark.parametrize("transformation", ["none", "log1p", "asinh", "sqrt", "logit"])
@pytest.mark.parametrize("values", [[0.3], [0.3] * 5])
def test_a_series_without_change_is_scaled_by_what_is_typical(transformation, values):
    """A quarter of its size, in one of its steps: what that is in transformed units, by the slope there."""
    model = make_model("issm", season=1, transformation=transformation, typical_change=0.25)
    batch = make_batch(model, entries_of("issm", lengths=(len(values) + HORIZON,)))
    batch["past_target"] = torch.tensor(values).reshape(1, -1, 1)
    batch["past_observed"] = torch.ones_like(batch["past_target"], dtype=torch.bool)
    location, scale = model.inference.scale_of(batch)
    value = torch.tensor(0.3, dtype=scale.dtype, requires_grad=True)
    place = model.units.transform(value)
    (slope,) = torch.autograd.grad(place, value)
    share = torch.ones_like(slope) if transformation == "logit" else slope * value.detach()
    torch.testing.assert_close(location, place.detach().expand(1, 1))
    torch.testing.assert_close(scale, 0.25 / len(values) * share.expand(1, 1))


@pytest.mark.parametrize("season", [1, 3])
def test_location_and_scale_by_the_formula(season):
    """Of the last values observed: the mean of their first season, and the mean change over a season."""
    entries = entries_of("gls", lengths=(40,))
    for scaling_length in (0, 11):
        model = make_model("gls", season=season, scaling_length=scaling_length)
        batch = make_batch(model, entries)
        values, seen = batch["past_target"][0, :, 0].double().numpy(), batch["past_observed"][0, :, 0].numpy().copy()
        assert not seen.all()
        seen[: np.flatnonzero(seen)[-scaling_length]] = False
        location, scale = model.inference.scale_of(batch)
        observed = values[seen]
        np.testing.assert_allclose(location[0, 0], observed[:season].mean(), rtol=1e-12)
        assert abs(observed[:season].mean() - observed[: season + 1].mean()) > 0.01
        both = seen[season:] & seen[:-season]
        np.testing.assert_allclose(scale[0, 0], np.abs(values[season:] - values[:-season])[both].mean(), rtol=1e-12)
