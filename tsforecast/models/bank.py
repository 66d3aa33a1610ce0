"""Bank of structural models: a posterior over structures and transformations for every series."""

from tsforecast.models.base import AbstractForecaster
from tsforecast.models.bounds import one_of
from tsforecast.models.options import RECORDS
from tsforecast.models.parts.bank_dynamics import BankDynamics
from tsforecast.models.parts.bank_inference import BankInference
from tsforecast.models.parts.bank_prior import begin, learnt
from tsforecast.models.parts.component_names import structures_of
from tsforecast.models.parts.joint_inference import JointInference, joined, of_one_target
from tsforecast.models.parts.optimisation import BankTraining
from tsforecast.models.parts.parameter_groups import ParameterGroups
from tsforecast.models.parts.units import Scaling, Units
from tsforecast.models.records import DataSpec
from tsforecast.models.transformations import OF_SIZE_ONE

_AUTO = ["none", "symlog"] * 3


class BankForecaster(AbstractForecaster[BankInference | JointInference]):
    """Several structures, each under several transformations, with a posterior over them for every series.

    It is a switching model whose switch stands still. Noises, dampings and priors of a structure are those of all
    series, unless `scales` frees them. The weights of a series come from the exact predictive likelihood of its own
    past, to a learnt power and with a learnt memory. So short series shrink to the others, and long ones decide for
    themselves. Forecasts are mixtures. All is trained together by the score of the mixture.

    Args:
        data: What the estimator finds out about the data.
        training: How the model is trained.
        structures: Sums of components joined by ",", each with the names that `issm` has for `components`; "auto"
            chooses by the frequency: levels and trends, damped and not, with its seasons, and some without.
        transformations: Names joined by ",", of values in units of the series' mean size: none; symlog, a logarithm
            from about a tenth of that size on, of either sign; symsqrt, a square root likewise; asinh, which begins to
            bend at that size. One that stands there again is another model, with noises of its own. "auto" takes none
            and symlog, each three times.
        scales: "pooled" for noises, dampings and priors that all series share; "free" for deviations of each series.
        clip: "nonnegative" cuts forecasts at zero, and "none" does not. "auto" does if the training data have no
            negative value.
        prior: Where the parameters begin: "learnt" with what series of the same frequency elsewhere have taught, see
            `tsforecast.models.parts.bank_prior`; "none" with values by rules of thumb.

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
        scales: str = "pooled",
        clip: str = "auto",
        prior: str = "learnt",
    ) -> None:
        one_of(("learnt", "none"), prior=prior)
        names = _AUTO if transformations == "auto" else transformations.replace(" ", "").split(",")
        for name in names:
            one_of(tuple(OF_SIZE_ONE), transformations=name)
        own = of_one_target(data)
        dynamics = BankDynamics(own, structures_of(structures, data.freq), names, scales)
        known = learnt(data.freq) if prior == "learnt" and not dynamics.log_power.is_meta else None
        if known is not None:
            begin(dynamics, known)
        scaling = Scaling(transformation="none", clip=clip)  # members transform for themselves
        # Targets are series of their own.
        inference = joined(BankInference(dynamics, Units(own, scaling), training.objective), Units(data, scaling))
        super().__init__(data, (training,), inference, ParameterGroups(training.learning_rate))
        self.save_hyperparameters(ignore=RECORDS)
