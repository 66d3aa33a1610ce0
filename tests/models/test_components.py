"""Components beside the dense part of a model: exact where one of them has no say."""

import pytest
import torch

from tests.models.cases import entries_of, make_batch, make_model
from tsforecast.models import ExactInference

EXACT = {"rtol": 1e-10, "atol": 1e-10}
COMPONENTS = "damped_level+day_of_week"
PARTS = ["gls"]


def issm_inside(model) -> ExactInference:
    return ExactInference(model.dynamics.issm, model.units, "likelihood")


def silence(model):
    """The dense part says nothing."""
    with torch.no_grad():
        model.dynamics.emission.zero_()


@pytest.mark.parametrize("state_dim", [0, 2])
def test_a_linear_system_whose_dense_part_says_nothing_is_the_issm(state_dim):
    """Loss, beliefs, forecasts, imputed values and components."""
    model = make_model("gls-components", state_dim=state_dim)
    assert bool(state_dim) == any("transition" in name for name, _ in model.named_parameters())
    if state_dim:
        silence(model)
    issm, batch = issm_inside(model), make_batch(model, entries_of("gls-components"))
    torch.testing.assert_close(model.loss(batch), issm.loss(batch, False), **EXACT)
    (belief, terms), (expected, expected_terms) = model.filter(batch), issm.filter(batch)
    torch.testing.assert_close(terms, expected_terms, **EXACT)
    size = expected.gaussian.mean.shape[-1]
    torch.testing.assert_close(belief.gaussian.mean[..., :size], expected.gaussian.mean, **EXACT)
    torch.testing.assert_close(belief.gaussian.cov[..., :size, :size], expected.gaussian.cov, **EXACT)
    ours, theirs = model.inference.predictive(belief, batch), issm.predictive(expected, batch)
    torch.testing.assert_close(ours.mean, theirs.mean, **EXACT)
    torch.testing.assert_close(ours.cov, theirs.cov, **EXACT)
    parts, expected_parts = model.inference.decompose(batch), issm.decompose(batch)
    assert set(parts) - set(expected_parts) == ({"rest"} if state_dim else set())
    for name, moments in expected_parts.items():
        for one, two in zip(parts[name], moments, strict=True):
            torch.testing.assert_close(one, two, **EXACT)


def test_components_and_the_rest_add_up():
    model = make_model("gls-components")
    batch = make_batch(model, entries_of("gls-components"))
    parts = model.inference.decompose(batch)
    assert [*parts] == ["damped_level", "day_of_week", "rest", "covariates", "fit"]
    assert parts["rest"][0].abs().max() > 1e-3
    assert (parts["rest"][1] > 0).all()
    total = sum(mean for name, (mean, _) in parts.items() if name != "fit")
    torch.testing.assert_close(total, parts["fit"][0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"state_dim": 0, "components": "none"}, "expected state_dim to be at least 1, got 0"),
        ({"state_dim": -1}, "expected state_dim to be at least 0, got -1"),
        ({"components": "level+weather"}, "unknown component 'weather'"),
        ({"num_targets": 2}, "a sum of components is one target, got 2"),
    ],
)
@pytest.mark.parametrize("name", PARTS)
def test_what_does_not_go_with_components_is_refused(name, options, message):
    with pytest.raises(ValueError, match=message):
        make_model(f"{name}-components", **options)
