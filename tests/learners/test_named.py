"""Named learners: their signatures say what they take, and the table says the same."""

import inspect

import pytest
from torch import nn

from tsforecast.learners import LEARNERS, GaussianLikelihood, bong

OFFERED = {"drift", "weight", "threshold", "rank", "generator"}


@pytest.mark.parametrize("name", LEARNERS)
def test_every_option_is_in_the_signature_and_the_table_says_the_same(name):
    parameters = inspect.signature(LEARNERS[name].make).parameters
    kinds = {parameter.kind for parameter in parameters.values()}
    assert kinds <= {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}
    assert LEARNERS[name].takes == OFFERED & parameters.keys()


def test_evidence_of_an_unknown_name_is_refused():
    with pytest.raises(ValueError, match=r"expected evidence to be one of linearised, .*, got 'nothing'"):
        bong(nn.Linear(1, 1), GaussianLikelihood(), evidence="nothing")
