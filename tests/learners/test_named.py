"""Named learners: their signatures say what they take, and parts that are given replace their own."""

import pytest
from torch import nn

from tsforecast.learners import BLR, LEARNERS, Diagonal, EmpiricalFisher, GaussianLikelihood, Parts, Wiener, bong

OWN = {"rank": {"lofi", "lrkf"}, "threshold": {"wolf-ekf"}, "generator": {"subspace-ekf", "vb"}}


@pytest.mark.parametrize("setting", OWN)
def test_the_signature_says_which_settings_a_learner_takes(setting):
    assert {name for name, learner in LEARNERS.items() if setting in learner.takes} == OWN[setting]


def test_all_but_gradient_descent_and_fits_to_blocks_are_made_of_the_same_parts():
    others = {name for name, learner in LEARNERS.items() if not learner.takes >= Parts.__annotations__.keys()}
    assert others == {"ogd", "vb"}


@pytest.mark.parametrize("name", sorted(LEARNERS.keys() - {"ogd", "vb"}))
def test_a_part_that_is_given_stands_instead_of_the_own_and_none_does_not(name):
    named = LEARNERS[name]
    network, likelihood = nn.Linear(2, 1), named.classes() if named.binary else GaussianLikelihood()
    drift, rule, family = Wiener(0.5), BLR(2, 0.5), Diagonal("precision", gain="unprojected")
    learner = named(network, likelihood, drift=drift, rule=rule, family=family, evidence="empirical-fisher")
    assert (learner.weight_drift, learner.rule, learner.family) == (drift, rule, family)
    assert learner.evidence == EmpiricalFisher()
    settings = dict.fromkeys(Parts.__annotations__)
    own, same = named(network, likelihood), named(network, likelihood, **settings)
    for part in ("family", "evidence", "weight_drift", "weight", "rule"):
        assert getattr(own, part) == getattr(same, part)
    with pytest.raises(TypeError, match="unheard_of"):
        named(network, likelihood, unheard_of=1)


def test_evidence_of_an_unknown_name_is_refused():
    with pytest.raises(ValueError, match=r"expected evidence to be one of linearised, .*, got 'nothing'"):
        bong(nn.Linear(1, 1), GaussianLikelihood(), evidence="nothing")
