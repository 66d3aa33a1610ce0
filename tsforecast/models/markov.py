"""Markov-switching regression and autoregression: regimes alone, with exact inference."""

import dataclasses

from tsforecast.models.base import AbstractForecaster
from tsforecast.models.bounds import at_least, one_of
from tsforecast.models.options import RECORDS
from tsforecast.models.parts.markov_counts import LIKELIHOODS, MarkovCountDynamics
from tsforecast.models.parts.markov_dynamics import AbstractMarkovDynamics, MarkovDynamics, RegimeOptions, parts_of
from tsforecast.models.parts.markov_inference import MarkovInference
from tsforecast.models.parts.markov_start import EMStart
from tsforecast.models.parts.markov_vector import MarkovVectorDynamics
from tsforecast.models.parts.optimisation import Training
from tsforecast.models.parts.parameter_groups import ParameterGroups
from tsforecast.models.parts.units import Scaling, Units
from tsforecast.models.records import DataSpec
from tsforecast.wording import option

_TRAINING = Training("likelihood", learning_rate=0.02)


class MarkovForecaster(AbstractForecaster[MarkovInference]):
    """An autoregression with intercepts, noises and coefficients that a hidden regime chooses, step by step.

        p(s_t = j | s_{t-1} = i) = softmax_j(w_ij + d_ij' u_t), of each stage of i,
        y_t = m(s_t) + b(s_t)' u_t + sum_l a_l(s_t) y_{t-l} + v(s_t)^(1/2) e_t

    in units of each series (Hamilton 1989, 1990; Krolzig 1997). All series share the parameters, but each has a centre
    and a unit of its own, which learn as deviations. The likelihood and the probabilities of regimes are exact, by
    Hamilton's filter and Kim's smoother. Training begins at the best of several runs of EM. Several targets are a
    vector autoregression, whose coefficients are matrices and whose noise has a full covariance.

    Args:
        data: What the estimator finds out about the data.
        training: How the model is trained: by the exact likelihood.
        scaling: The units in which the model sees the targets.
        regimes: Number of regimes. They are in order when training begins: from calm to wild, or if they share the
            noise from low to high. 1 for an autoregression. None for what the estimator finds in the data, as in the
            following; else 2.
        order: Number of lags of y; 0 for a regression. None for what the data show; else 1.
        seasonal: Whether the lags of the main season join them: the season and the `order` lags behind it. None for
            what the data show; else they do.
        stages: Number of stages of each regime: it lasts for the sum of so many geometric durations. 1 for a geometric
            one; None for what the data show, else 1.
        form: "intercept", as above; or "mean", in which y_t - m(s_t) has lags y_{t-l} - m(s_{t-l}), so that a change of
            regime moves y at once (Hamilton 1989). A mean form has no seasonal lags.
        switching: What differs between regimes, a sum of location, scale, coefficients, effects. "auto" for what the
            data show; else location and scale.
        transition_covariates: Whether covariates move the transition probabilities, too (d above; Filardo 1994).
        initial: Regimes before the first step: "stationary", the share of each regime in the long run; or "free".
        persistence: Probability to stay in a regime where training begins.
        starts: Number of runs of EM; 0 for none.
        likelihood: "gaussian"; or "poisson" or "negative-binomial" for counts, whose mean and dispersion a regime
            chooses. Counts have no lags, no transformation, and no scaling.

    Raises:
        ValueError: If an option is not known or out of its range, or two do not go together.
    """

    def __init__(
        self,
        data: DataSpec,
        training: Training = _TRAINING,
        scaling: Scaling = Scaling(),
        *,
        regimes: int | None = None,
        order: int | None = None,
        seasonal: bool | None = None,
        stages: int | None = None,
        form: str = "intercept",
        switching: str = "auto",
        transition_covariates: bool = False,
        initial: str = "stationary",
        persistence: float = 0.9,
        starts: int = 4,
        likelihood: str = "gaussian",
    ) -> None:
        one_of(("intercept", "mean"), form=form)
        one_of(("stationary", "free"), initial=initial)
        one_of(LIKELIHOODS, likelihood=likelihood)
        at_least(0, starts=starts)
        if training.objective == "crps":  # which regime is drawn has no derivative
            raise ValueError("the CRPS of paths teaches nothing about regimes: take objective 'likelihood'")
        if transition_covariates and data.num_series and not data.num_dynamic_real:
            raise ValueError("expected covariates that move transition probabilities, but the data have none")
        has_counts = likelihood != "gaussian"
        if has_counts:
            if scaling.scaling == "series":  # the default of all models
                scaling = dataclasses.replace(scaling, scaling="none")  # counts are not scaled
            _check_counts(data, scaling, order, seasonal, form, likelihood)
        has_own = scaling.scaling != "training"  # scaled alike, series have no centre and unit of their own
        options = RegimeOptions(
            regimes=2 if regimes is None else regimes,
            stages=1 if stages is None else stages,
            order=0 if has_counts else 1 if order is None else order,
            seasonal=seasonal is not False and not has_counts,
            of_mean=form == "mean",
            switching=parts_of(switching),
            transition_covariates=transition_covariates and data.num_dynamic_real > 0,
            free_initial=initial == "free",
            persistence=persistence,
        )
        dynamics: AbstractMarkovDynamics
        if has_counts:
            dynamics = MarkovCountDynamics(data, options, likelihood == "poisson")
        elif data.num_targets == 1:
            dynamics = MarkovDynamics(data, options, has_own)
        elif form == "intercept":
            dynamics = MarkovVectorDynamics(data, options, has_own)
        else:
            raise ValueError(f"expected form='intercept' with {data.num_targets} targets, got 'mean'")
        groups = ParameterGroups(training.learning_rate)
        inference = MarkovInference(dynamics, Units(data, scaling, "counts" if has_counts else "real"))
        super().__init__(data, (training, scaling), inference, groups, EMStart(starts, training.seed or 0))
        self.save_hyperparameters(ignore=RECORDS)


def _check_counts(
    data: DataSpec, scaling: Scaling, order: int | None, seasonal: bool | None, form: str, likelihood: str
) -> None:
    """Refuses options that counts do not have."""
    if data.num_targets != 1:
        raise ValueError(f"expected one target with likelihood {likelihood!r}, got {data.num_targets}")
    if order or seasonal or form != "intercept":
        raise ValueError(f"likelihood {likelihood!r} has no lags: leave out order, seasonal and form")
    if scaling.scaling != "none" or scaling.transformation not in ("none", "auto"):
        raise ValueError(
            f"likelihood {likelihood!r} is of counts as they are: expected {option('scaling', 'none')} and "
            f"{option('transformation', 'none')}, got {scaling.scaling!r} and {scaling.transformation!r}"
        )
