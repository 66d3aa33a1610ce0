"""Bank of structural models: a posterior over structures and transformations for every series."""

from tsforecast.models.base import AbstractForecaster
from tsforecast.models.options import RECORDS
from tsforecast.models.parts.bank import BankDynamics, BankInference
from tsforecast.models.parts.bounds import one_of
from tsforecast.models.parts.component_names import structures_of
from tsforecast.models.parts.optimisation import BankTraining, ParameterGroups
from tsforecast.models.parts.transformation import OF_SIZE_ONE
from tsforecast.models.parts.units import Scaling, Units
from tsforecast.models.records import DataSpec


class BankForecaster(AbstractForecaster[BankInference]):
    """Several structures, each under several transformations, with a posterior over them for every series.

    It is a switching model whose switch stands still. Noises, dampings and priors of each structure are pooled over
    series. The weights of a series come from the exact predictive likelihood of its own past, to a learnt power and
    with a learnt memory. So short series shrink to what the others say, and long ones decide for themselves. Forecasts
    are mixtures. All is trained together by the score of the mixture.

    Args:
        data: What the estimator finds out about the data.
        training: How the model is trained.
        structures: Sums of components joined by ",", each with the names that `issm` has for `components`; "auto"
            takes levels and trends, damped and not, with the seasons of the frequency, and some without.
        transformations: Names joined by ",", of values in units of the series' mean size: none; symlog, a logarithm
            from about a tenth of that size on, of either sign; asinh, which begins to bend at that size. "auto" takes
            none and symlog.
        clip: "nonnegative" cuts forecasts at zero, and "none" does not. "auto" does if the training data have no
            negative value.

    Raises:
        ValueError: If an option is not known or out of its range.
    """

    def __init__(
        self,
        data: DataSpec,
        training: BankTraining = BankTraining(),
        *,
        structures: str = "auto",
        transformations: str = "auto",
        clip: str = "auto",
    ) -> None:
        names = ["none", "symlog"] if transformations == "auto" else transformations.replace(" ", "").split(",")
        for name in names:
            one_of(OF_SIZE_ONE, transformations=name)
        if len(set(names)) < len(names):
            raise ValueError(f"expected every transformation once, got {transformations!r}")
        dynamics = BankDynamics(data, structures_of(structures, data.freq), names)
        units = Units(data, Scaling(transformation="none", clip=clip))
        inference = BankInference(dynamics, units, training.objective)
        super().__init__(data, (training,), inference, ParameterGroups(training.learning_rate))
        self.save_hyperparameters(ignore=RECORDS)
