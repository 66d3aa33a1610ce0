"""Other libraries on the problems of `filtering.py`, each by its own fastest route to a log-likelihood of many series.

Imports are inside the functions: each library runs in a process of its own, and none is required.
"""
# pyright: reportMissingImports=false

import dataclasses
import importlib.util
import os
import warnings
from typing import Any

import numpy as np
import torch
from contender import Contender, UnsupportedError, from_torch, to_tensors
from problems import ISSM_STATES, Problem
from torch import Tensor


def make_statsmodels(problem: Problem, dtype: torch.dtype, device: str) -> Contender:
    """The univariate filter (targets one by one: the faster of its two), one series at a time, no gradients."""
    from statsmodels.tsa.statespace.kalman_filter import KalmanFilter

    problem = problem.first(8)
    real = np.float64 if dtype == torch.float64 else np.float32
    arrays = {name: x.astype(real) if x.dtype == np.float64 else x for name, x in problem.arrays.items()}
    values = problem.with_nans().astype(real)
    states = len(arrays["m0"])
    filters = []
    for series in range(problem.num_series):
        model = KalmanFilter(values.shape[-1], states, dtype=real)
        model.bind(np.ascontiguousarray(values[series]))
        if problem.kind == "issm":
            emission = np.broadcast_to(problem.emission(), (problem.num_series, problem.num_steps, 1, states))[series]
            model["transition"] = np.eye(states, dtype=real)
            model["design"] = np.ascontiguousarray(np.moveaxis(emission, 0, -1), dtype=real)
            model["state_cov"] = np.ascontiguousarray(np.moveaxis(problem.state_noise()[series], 0, -1), dtype=real)
            model["obs_cov"] = arrays["r"][series][None, None]
        else:
            transition, emission, noise, variances = (
                arrays[name][series] if problem.kind == "dense" else arrays[name] for name in "ACQR"
            )
            model["transition"], model["design"], model["state_cov"] = transition, emission, noise
            model["obs_cov"] = np.diag(variances)
        model["selection"] = np.eye(states, dtype=real)
        model.initialize_known(arrays["m0"], arrays["P0"])
        model.set_filter_method(filter_univariate=True)
        model.tolerance = 0  # no switch to a steady state
        filters.append(model)
    return Contender(problem, lambda: np.array([model.loglike() for model in filters]), remark="one series at a time")


def make_dynamax(problem: Problem, dtype: torch.dtype, device: str) -> Contender:
    """The sequential filter under `vmap`, compiled by XLA (the compilation is not timed)."""
    if problem.observed is not None:
        raise UnsupportedError("no missing values")
    if dtype == torch.float64:
        os.environ["JAX_ENABLE_X64"] = "1"
    import jax
    import jax.numpy as jnp
    from dynamax.linear_gaussian_ssm.inference import lgssm_filter, make_lgssm_params

    real = jnp.float64 if dtype == torch.float64 else jnp.float32
    arrays = {name: jnp.asarray(x, real if x.dtype == np.float64 else None) for name, x in problem.arrays.items()}
    mean, cov = arrays["m0"], arrays["P0"]
    if problem.kind == "issm":
        emission, eye = jnp.asarray(problem.emission(), real), jnp.eye(ISSM_STATES, dtype=real)
        active, axes = arrays["active"], (0, 0, 0)

        def issm(q: Any, r: Any, y: Any) -> Any:
            diagonal = jnp.zeros((problem.num_steps, ISSM_STATES), real)
            diagonal = diagonal.at[jnp.arange(problem.num_steps)[:, None], active].set(q)
            noise = jnp.roll(jax.vmap(jnp.diag)(diagonal), 1, 0)  # its entry t is the noise into step t
            return lgssm_filter(make_lgssm_params(mean, cov, eye, noise, emission, r[:, None, None]), y).marginal_loglik

        one_series = issm
    else:
        axes = (*[0 if problem.kind == "dense" else None] * 4, 0)

        def dense(a: Any, c: Any, q: Any, r: Any, y: Any) -> Any:
            return lgssm_filter(make_lgssm_params(mean, cov, a, q, c, jnp.diag(r)), y).marginal_loglik

        one_series = dense

    def total(*arguments: Any) -> Any:
        log_likelihood = jax.vmap(one_series, axes)(*arguments)
        return log_likelihood.sum(), log_likelihood

    arguments = (*(arrays[name] for name in problem.wrt), arrays["y"])
    value = jax.jit(lambda *arguments: total(*arguments)[1])
    both = jax.jit(jax.value_and_grad(total, argnums=tuple(range(len(problem.wrt))), has_aux=True))

    def gradient() -> tuple[Any, dict[str, Any]]:
        (_, log_likelihood), gradients = jax.block_until_ready(both(*arguments))
        return log_likelihood, dict(zip(problem.wrt, gradients, strict=True))

    return Contender(problem, lambda: jax.block_until_ready(value(*arguments)), gradient)


def make_torch_kf(problem: Problem, dtype: torch.dtype, device: str) -> Contender:
    """Its `project`, `update` and `predict`, looped (`filter` has no likelihood and takes constant systems only)."""
    from torch_kf import GaussianState, KalmanFilter

    if problem.observed is not None and problem.kind != "issm":
        raise UnsupportedError("a partly missing observation is dropped whole")
    tensors = to_tensors(problem, dtype, device)
    leaves = {name: tensors[name] for name in problem.wrt}
    values = tensors["y"].unsqueeze(-1).unbind(1)
    observed = tensors["observed"].unbind(1) if "observed" in tensors else None
    # One covariance serves all series where neither parameters nor missing values tell them apart.
    batch = () if problem.kind == "shared" else (problem.num_series,)
    states = len(tensors["m0"])
    prior = GaussianState(
        tensors["m0"].expand(problem.num_series, states).unsqueeze(-1), tensors["P0"].expand(*batch, states, states)
    )
    emission = torch.as_tensor(problem.emission(), dtype=dtype, device=device) if problem.kind == "issm" else None
    active = torch.as_tensor(problem.active(), device=device) if problem.kind == "issm" else None

    def step_parameters() -> tuple[KalmanFilter, list[dict[str, Any]], list[Tensor | None]]:
        if emission is None or active is None:
            model = KalmanFilter(tensors["A"], tensors["C"], tensors["Q"], torch.diag_embed(tensors["R"]))
            return model, [{}] * problem.num_steps, [None] * problem.num_steps
        diagonal = tensors["q"].new_zeros(problem.num_series, problem.num_steps, states)
        noise = torch.diag_embed(diagonal.scatter(-1, active, tensors["q"])).unbind(1)
        variances = tensors["r"][..., None, None].unbind(1)
        matrices = emission.unbind(-3)
        model = KalmanFilter(torch.eye(states, dtype=dtype, device=device), matrices[0], noise[0], variances[0])
        measurement = [
            {"measurement_matrix": c, "measurement_noise": r} for c, r in zip(matrices, variances, strict=True)
        ]
        return model, measurement, list(noise)

    def log_likelihood() -> Tensor:
        model, measurement, noise = step_parameters()
        state, total = prior, torch.zeros((), dtype=dtype, device=device)
        for t, value in enumerate(values):
            projection = model.project(state, **measurement[t])
            updated = model.update(state, value, projection=projection, **measurement[t])
            terms = projection.log_likelihood(value)
            if observed is not None:
                seen = observed[t]
                terms = torch.where(seen[:, 0], terms, 0.0)
                updated = GaussianState(
                    torch.where(seen[..., None], updated.mean, state.mean),
                    torch.where(seen[..., None], updated.covariance, state.covariance),
                )
            total = total + terms
            state = model.predict(updated, process_noise=noise[t])
        return total

    return from_torch(problem, log_likelihood, leaves)


def make_pyro(problem: Problem, dtype: torch.dtype, device: str) -> Contender:
    """`GaussianHMM`, a parallel scan over time; its covariances must be regular, and a transition comes first."""
    if problem.observed is not None:
        raise UnsupportedError("no missing values")
    from pyro.distributions import GaussianHMM
    from torch.distributions import Independent, MultivariateNormal, Normal

    problem = problem.first({"issm": 50, "dense": 100, "shared": 200}[problem.kind])
    remark = ""
    if problem.kind == "issm":
        problem = dataclasses.replace(problem, jitter=1e-4)
        remark = "with 1e-4 I added to Q, which must be regular"
    tensors = to_tensors(problem, dtype, device)
    leaves = {name: tensors[name] for name in problem.wrt}
    states = len(tensors["m0"])
    zeros = torch.zeros(states, dtype=dtype, device=device)

    def normal(cov: Tensor) -> MultivariateNormal:
        return MultivariateNormal(zeros, cov, validate_args=False)

    def log_likelihood() -> Tensor:
        if problem.kind == "issm":
            emission = torch.as_tensor(problem.emission(), dtype=dtype, device=device)
            active = torch.as_tensor(problem.active(), device=device)
            diagonal = tensors["q"].new_zeros(problem.num_series, problem.num_steps, states)
            diagonal = diagonal.scatter(-1, active, tensors["q"]) + problem.jitter
            # The noise into the first step is part of the prior.
            diagonal = torch.cat([torch.full_like(diagonal[:, :1], problem.jitter), diagonal[:, :-1]], 1)
            noise, transition = torch.diag_embed(diagonal), torch.eye(states, dtype=dtype, device=device)
            initial, deviation = tensors["P0"] - problem.jitter * transition, tensors["r"].sqrt().unsqueeze(-1)
        else:
            time = (lambda x: x) if problem.kind == "shared" else (lambda x: x.unsqueeze(1))
            back = torch.linalg.inv(tensors["A"])  # one transition before the first state
            initial = back @ (tensors["P0"] - tensors["Q"]) @ back.mT
            transition, emission, noise = time(tensors["A"]), time(tensors["C"]), time(tensors["Q"])
            deviation = time(tensors["R"].sqrt())
        observation = Independent(Normal(torch.zeros_like(deviation), deviation, validate_args=False), 1)
        model = GaussianHMM(
            normal(initial), transition.mT, normal(noise), emission.mT, observation, validate_args=False
        )
        return model.log_prob(tensors["y"])

    return from_torch(problem, log_likelihood, leaves, remark)


def make_torchcast(problem: Problem, dtype: torch.dtype, device: str) -> Contender:
    """Structural models with missing values: the seasons as a regression on indicators, or two damped trends.

    The library is github.com/onesixsolutions/torchcast; the package of that name on PyPI is another.
    """
    if importlib.util.find_spec("torchcast") is None or importlib.util.find_spec("torchcast.kalman_filter") is None:
        raise ImportError("pip install git+https://github.com/onesixsolutions/torchcast")
    if problem.kind == "dense":
        raise UnsupportedError("no transition per series")
    from torchcast.covariance import Covariance
    from torchcast.kalman_filter import KalmanFilter
    from torchcast.process import LinearModel, LocalTrend

    class UnitTrend(LocalTrend):
        _velocity_multi = 1.0

    torch.set_default_dtype(dtype)  # its transition matrices have no other
    torch.set_default_device(device)
    tensors = to_tensors(problem, dtype, device)
    states, targets = len(tensors["m0"]), tensors["y"].shape[-1]
    measures = [f"target {k}" for k in range(targets)]
    inputs = {}
    initial = tensors["P0"]
    if problem.kind == "issm":
        names = [f"state {k}" for k in range(states)]
        processes = [LinearModel("states", predictors=names, measure=measures[0], fixed=False)]
        emission = np.broadcast_to(problem.emission(), (problem.num_series, problem.num_steps, 1, states))
        inputs["X"] = torch.as_tensor(emission[..., 0, :].copy(), dtype=dtype, device=device)
        leaves = {name: tensors[name] for name in problem.wrt}
    else:
        processes = [UnitTrend(name, measure=name, decay_velocity=0.95) for name in measures]
        back = torch.linalg.inv(tensors["A"].detach())
        initial = back @ initial @ back.mT  # a transition without noise comes before the first observation
        leaves = {"diag Q": tensors["Q"].detach().diagonal().clone().requires_grad_(), "R": tensors["R"]}

    # Both covariances are the identity times standard deviations of every series, step and dimension.
    process = Covariance.from_processes(processes, predict_variance=True)
    measure = Covariance.from_measures(measures, predict_variance=True)
    model = KalmanFilter(processes, measures, measure_covariance=measure, process_covariance=process).to(device)
    for parameter in (p for covariance in (process, measure) for p in covariance.parameters()):
        torch.nn.init.zeros_(parameter)
    model.requires_grad_(False)
    values = torch.as_tensor(problem.with_nans(), dtype=dtype, device=device)
    prior = (tensors["m0"].unsqueeze(0), initial.unsqueeze(0))

    def log_likelihood() -> Tensor:
        size = (problem.num_series, problem.num_steps)
        if problem.kind == "issm":
            active = torch.as_tensor(problem.active(), device=device)
            deviation = values.new_zeros(*size, states).scatter(-1, active, tensors["q"].sqrt())
            noise = tensors["r"].sqrt().unsqueeze(-1)
        else:
            deviation = leaves["diag Q"].sqrt().expand(*size, states)
            noise = tensors["R"].sqrt().expand(*size, targets)
        # Its noise leads into a step: none into the first.
        deviation = torch.cat([torch.zeros_like(deviation[:, :1]), deviation[:, :-1]], 1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            predictions = model(
                values, initial_state=prior, process_var_multi=deviation, measure_var_multi=noise, **inputs
            )
            return predictions.log_prob(values).sum(1)

    return from_torch(problem, log_likelihood, leaves, "" if problem.kind == "issm" else "gradients of R and diag Q")
