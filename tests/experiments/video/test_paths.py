"""Paths of models of frames, and what is drawn and expected along them."""

import numpy as np
import pytest
import torch

from experiments.video.paths import decode, forecast_paths, smoothed_paths
from tests.models.cases import entries_of, make_batch, make_model
from tsforecast.forecasting.lightning_module import ForecasterInTraining
from tsforecast.models import Series
from tsforecast.nn.decoders import BernoulliDecoder
from tsforecast.nn.image import principal_components

EXACT = {"rtol": 1e-9, "atol": 1e-9}
IMAGES = ["arsgls-image", "kvae-image"]


@pytest.fixture(params=IMAGES)
def case(request):
    model = make_model(request.param, num_particles=64).eval()
    return model, make_batch(model, entries_of(request.param))


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@torch.no_grad()
def test_paths_are_those_of_the_forecast(case, monkeypatch):
    """Where pixels draw no random numbers, the forecast's frames are the expected ones along the paths."""
    model, batch = case
    belief, _ = model.filter(batch)
    paths = forecast_paths(model, belief, batch, 5, generator())
    assert paths.shape == (4, 5, 3, 2)
    _, expected = decode(model, paths)
    monkeypatch.setattr(BernoulliDecoder, "sample", lambda self, z, location, scale, _: self.mean(z, location, scale))
    frames = model.forecast(belief, batch, 5, generator())
    torch.testing.assert_close(expected.permute(2, 1, 0, 3), frames, **EXACT)
    assert paths.std(1).min() > 0


@pytest.mark.parametrize("name", IMAGES)
@torch.no_grad()
def test_training_weighs_the_reconstruction(name):
    """At one particle the objective is linear in the weight, with log p(y | z) as its slope; scores do not know it."""
    model = make_model(name, num_particles=1)
    batch = make_batch(model, entries_of(name))
    time_slice, (location, scale) = model.inference.slice_of(batch, "both"), model.inference.scale_of(batch)
    count = time_slice.observed.sum((0, 2))

    def objective():
        torch.manual_seed(0)
        return -model.loss(batch) * count

    found, whole = {}, {}
    for weight in (0.3, 0.6, 1.0):
        model.dynamics.reconstruction_weight = weight
        found[weight], whole[weight] = model.train() and objective(), model.eval() and objective()
        torch.testing.assert_close(whole[weight], whole[0.3], **EXACT)
    slope = (found[0.6] - found[0.3]) / 0.3
    torch.testing.assert_close((found[1.0] - found[0.6]) / 0.4, slope, **EXACT)
    torch.testing.assert_close(found[1.0], whole[1.0], **EXACT)
    torch.manual_seed(0)
    filtered, system, _ = model.inference.filtering.run(
        time_slice, Series.of(batch), location, scale, keep_history=True
    )
    steps = zip(filtered.history.auxiliary, time_slice.values, time_slice.observed, strict=True)
    terms = [system.likelihood.log_prob(z, value, seen, t)[0] for t, (z, value, seen) in enumerate(steps)]
    torch.testing.assert_close(torch.stack(terms).sum(0), slope, **EXACT)


@torch.no_grad()
def test_drawn_frames_are_of_the_expected_probabilities(case):
    model, _ = case
    auxiliary = torch.randn(3, 2, generator=generator(), dtype=torch.float64)
    drawn, expected = decode(model, auxiliary.expand(4000, 3, 2), generator(1))
    assert set(drawn.unique().tolist()) == {0.0, 1.0}
    torch.testing.assert_close(expected, expected[:1].expand_as(expected))
    p = expected[0]
    score = (drawn.mean(0) - p) / (p * (1 - p) / len(drawn)).sqrt()
    assert score.square().mean() < 1 + 4 * (2 / score.numel()) ** 0.5
    ours = model.dynamics.decoder.sample(auxiliary, torch.zeros(64).double(), torch.ones(64).double(), generator(2))
    torch.testing.assert_close(decode(model, auxiliary, generator(2))[0], ours, **EXACT)


@torch.no_grad()
def test_grey_frames_are_drawn_by_their_decoder():
    model = make_model("kvae-image", likelihood="gaussian").eval()
    auxiliary = torch.randn(5, 2, generator=generator(), dtype=torch.float64)
    zeros, ones = torch.zeros(64).double(), torch.ones(64).double()
    drawn, expected = decode(model, auxiliary, generator(1))
    torch.testing.assert_close(drawn, model.dynamics.decoder.sample(auxiliary, zeros, ones, generator(1)), **EXACT)
    torch.testing.assert_close(expected, model.dynamics.decoder.mean(auxiliary, zeros, ones), **EXACT)


@torch.no_grad()
def test_what_fills_a_gap_knows_what_came_later_and_not_what_is_hidden(case):
    model, batch = case
    batch["past_observed"][:, 5] = False
    one = smoothed_paths(model, batch, 3, generator())
    assert one.shape == (batch["past_target"].shape[1], 3, 3, 2)
    batch["past_target"][:, 5] = 1 - torch.nan_to_num(batch["past_target"][:, 5])
    np.testing.assert_array_equal(one, smoothed_paths(model, batch, 3, generator()))
    batch["past_observed"][:, -1] = ~batch["past_observed"][:, -1]
    assert (smoothed_paths(model, batch, 3, generator())[5] != one[5]).any()


@pytest.mark.parametrize("name", [*IMAGES, "arsgls-binary"])
def test_auxiliaries_begin_as_principal_components(name):
    """Of frames that are seen; what stands in missing ones does not count. Only frames have such a start."""
    model = make_model(name)
    batch = make_batch(model, entries_of(name))
    before = {key: value.clone() for key, value in model.state_dict().items()}
    if name not in IMAGES:
        ForecasterInTraining(model).on_train_start()
        torch.testing.assert_close(model.state_dict(), before, rtol=0.0, atol=0.0)
        return
    model.begin(model.inference, batch)
    time_slice = model.inference.slice_of(batch, "both")
    observed = time_slice.observed.any(-1)
    system, _ = model.dynamics.switching(time_slice, Series.of(batch), *model.inference.scale_of(batch), proposing=True)
    mean = (system.proposal if name == "kvae-image" else system.auxiliary_proposal).mean[observed]
    features = model.dynamics.encoder(time_slice.values[observed])
    expected = principal_components(features, 2)
    # As far as layers between them allow.
    assert ((mean - expected).square().sum(0) < 0.9 * expected.square().sum(0)).all()
    torch.testing.assert_close((mean - expected).mean(0), torch.zeros(2).double(), **EXACT)
    changed = {key for key, value in model.state_dict().items() if not torch.equal(value, before[key])}
    assert len(changed) == 4  # of the last layers of encoder and q(z)
