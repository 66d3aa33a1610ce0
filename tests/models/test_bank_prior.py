"""What a bank begins with: parameters that other series have taught."""

import pytest
import torch

from tsforecast.models import MODELS, make_model
from tsforecast.models.parts import bank_prior
from tsforecast.models.parts.component_names import kinds_of

UNITS = sorted(path.stem for path in bank_prior.FOLDER.glob("*.pt"))


def bank(freq: str = "M", **options):
    return make_model(MODELS["bank"], freq=freq, prediction_length=4, **options)


@pytest.mark.parametrize("unit", UNITS)
def test_a_bank_of_every_unit_begins_with_all_that_is_known(unit):
    """The file has the structures of today's banks: a change of these needs a new training."""
    known = bank_prior.learnt(unit)
    assert known is not None
    assert known["structures"] == kinds_of(unit)
    begun = bank_prior.prior_of(bank(unit).dynamics)
    assert begun["transformations"] == known["transformations"]
    for name, value in known["state"].items():
        torch.testing.assert_close(begun["state"][name], value, rtol=0, atol=0)


def test_without_a_prior_the_parameters_are_others():
    learnt, plain = (bank(prior=name).dynamics for name in ("learnt", "none"))
    assert not torch.equal(learnt.log_prior, plain.log_prior)
    assert torch.equal(plain.log_prior, torch.zeros_like(plain.log_prior))


def test_structures_of_ones_own_begin_with_what_is_known_of_each():
    """Covariates and categories have no part in it."""
    own = bank(
        structures="trend+month_of_year,level+day_of_month", transformations="symlog,asinh", num_dynamic_real=2,
        cardinality=[3],
    ).dynamics  # fmt: skip
    whole = bank().dynamics
    place = kinds_of("M").index("trend+month_of_year")
    mine, its = (one.parameters_of_series for one in (own.structures[0], whole.structures[place]))
    size = len(its.population)
    assert torch.equal(mine.population[:size], its.population)
    assert torch.equal(mine.population[size:], torch.zeros(2))
    assert torch.equal(mine.categories[-1][0, :size], its.categories[-1][1])  # the first symlog of whole
    assert torch.equal(mine.categories[0], torch.zeros(3, size + 2))
    assert own.log_shape[0, 0] == whole.log_shape[place, 1]
    unknown = bank(structures="level+day_of_month", transformations="asinh", prior="none").dynamics.structures[0]
    assert torch.equal(own.structures[1].parameters_of_series.population[:-2], unknown.parameters_of_series.population)


def test_a_frequency_without_a_prior_begins_by_rules_of_thumb():
    assert bank_prior.learnt("ms") is None
    assert torch.equal(bank("ms").dynamics.log_prior, bank("ms", prior="none").dynamics.log_prior)


def test_repeated_transformations_begin_apart():
    dynamics = bank("s", structures="level", transformations="none,none,none").dynamics
    levels = dynamics.structures[0].parameters_of_series.categories[-1][:, 0]
    assert levels.argsort().tolist() == [1, 0, 2]


def test_a_damaged_prior_is_refused(tmp_path, monkeypatch):
    (tmp_path / "M.pt").write_bytes(b"nothing")
    monkeypatch.setattr(bank_prior, "FOLDER", tmp_path)
    with pytest.raises(ValueError, match="damaged"):
        bank("M")
