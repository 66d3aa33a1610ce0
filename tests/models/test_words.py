"""Models in words."""

from types import SimpleNamespace
from unittest.mock import Mock

from tsforecast.models import BankForecaster, ISSMForecaster, SGLSForecaster
from tsforecast.models.words import in_words


def test_a_model_is_its_name_and_its_components():
    def net(model, names=None, transformation="none"):
        structure = names and SimpleNamespace(names=names)
        return Mock(model, dynamics=Mock(structure=structure), units=Mock(transformation=transformation))

    assert in_words(net(SGLSForecaster)) == "sgls"
    assert in_words(net(BankForecaster)) == "bank (a mixture of structural models)"
    assert in_words(net(ISSMForecaster, ("level",))) == "issm (level)"
    words = in_words(net(ISSMForecaster, ("level", "trend", "quarter_of_year"), "log1p"))
    assert words == "issm (level, trend and quarter of year, on a log scale)"
