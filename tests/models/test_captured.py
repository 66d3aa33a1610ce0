"""Training steps as CUDA graphs: no value steers a loss, and a graph gives what the loss gives."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.models.cases import CASES, entries_of, make_batch, make_model
from tests.test_devices import moved, on_gpu
from tsforecast import StateSpaceEstimator
from tsforecast.core.linalg import contracted
from tsforecast.core.particles import switching
from tsforecast.core.torch_internals import branchless, is_branchless
from tsforecast.forecasting.cuda_graphs import CudaGraphs
from tsforecast.models.parts.captured import CapturedLoss

# What makes a processor wait for a GPU, or copies to it, so that no graph can be captured.
_WAITING = ("_local_scalar_dense", "is_nonzero", "nonzero", "masked_select", "unique", "bincount", "lift_fresh")


class NothingWaits(TorchDispatchMode):
    """Refuses operations that a CUDA graph cannot have."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        assert name not in _WAITING, name
        if name in ("index", "index_put_", "index_put"):
            assert not any(x is not None and x.dtype == torch.bool for x in args[1]), "a mask as an index"
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("case", CASES)
def test_no_value_steers_a_loss_or_its_gradients(case, monkeypatch):
    model = make_model(case)
    batch = make_batch(model, entries_of(case))
    # Eager code draws the first switch of a recurrent model in a shorter way, by fewer random numbers.
    monkeypatch.setattr(switching, "is_transformed", lambda x: True)
    weights = list(model.parameters())
    torch.manual_seed(0)
    expected = model.loss(batch)
    gradients = torch.autograd.grad(expected.mean(), weights, allow_unused=True)
    with branchless():
        model.loss(batch)  # makes the constants, as the steps before a capture do
        torch.manual_seed(0)
        with NothingWaits():
            loss = model.loss(batch)
            found = torch.autograd.grad(loss.mean(), weights, allow_unused=True)
    assert not is_branchless()
    torch.testing.assert_close(loss, expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(*([torch.zeros(()) if x is None else x for x in y] for y in (found, gradients)))


def test_bases_are_kept_from_expanding_without_a_decomposition(float64):
    torch.manual_seed(0)
    matrix = torch.cat([0.3 * torch.randn(50, 6, 6), 1.5 * torch.eye(6).expand(1, 6, 6), torch.zeros(1, 6, 6)])
    matrix.requires_grad_()
    cotangent = torch.randn_like(matrix)
    expected = contracted(matrix)
    (bar,) = torch.autograd.grad(expected, matrix, cotangent)
    with branchless(), NothingWaits():
        found = contracted(matrix)
        (found_bar,) = torch.autograd.grad(found, matrix, cotangent)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(found_bar[:50], bar[:50])  # of equal singular values the gradient is not unique
    assert found_bar.isfinite().all()


class OnCpu(CudaGraphs):
    """Without the check of the device."""

    def on_train_start(self, trainer, pl_module):
        pl_module.captured = self.captured = CapturedLoss(pl_module, pl_module.loss)


@pytest.mark.parametrize("fails", [False, True])
def test_a_training_repeats_steps_and_asks_eager_code_where_they_fail(fails, monkeypatch):
    """Of graphs there is here only what a training does with them: without random numbers it gives the same weights."""
    captures = []

    def capture(step, inputs, allow_unused_input):
        captures.append(step)
        return (lambda *inputs: step(*inputs) * torch.nan) if fails else step

    monkeypatch.setattr(torch.cuda, "make_graphed_callables", capture)
    values = np.random.default_rng(0).normal(size=60).cumsum()
    data = [{"start": pd.Period("2024-01-01", "D"), "target": values, "item_id": "a"}]
    states = []
    for callbacks in ([], [OnCpu()]):
        options = {"max_epochs": 2, "accelerator": "cpu", "callbacks": callbacks}
        estimator = StateSpaceEstimator(
            "gls", "D", 4, seed=0, state_dim=2, context_length=20, num_batches_per_epoch=4, trainer_kwargs=options
        )
        states.append(estimator.train_model(data).trained_net.state_dict())
    assert len(captures) == 1
    assert callbacks[0].captured._graphs
    torch.testing.assert_close(*states)


def test_graphs_need_one_gpu():
    options = {"max_epochs": 1, "accelerator": "cpu", "callbacks": [CudaGraphs()]}
    data = [{"start": pd.Period("2024-01-01", "D"), "target": np.arange(60.0), "item_id": "a"}]
    with pytest.raises(ValueError, match="expected a training on one GPU for CUDA graphs, got 1 x cpu"):
        StateSpaceEstimator("gls", "D", 4, seed=0, trainer_kwargs=options).train(data)


@on_gpu
@pytest.mark.parametrize("case", ["issm", "gls", "rsgls-issm", "arsgls", "arsgls-components", "arsgls-skip", "kvae-rb"])
def test_a_graph_gives_the_loss_and_its_gradients(case):
    model = make_model(case).cuda()
    batch = moved_batch(case)
    captured = CapturedLoss(model, model.loss)
    steps = [captured.prepare(batch) for _ in range(3)]
    assert captured._graphs
    found = []
    for step in (steps[0], steps[-1]):
        torch.manual_seed(1)
        model.zero_grad()
        loss = step(batch)
        loss.mean().backward()
        found.append((loss.detach().clone(), [p.grad.clone() for p in model.parameters() if p.grad is not None]))
    torch.testing.assert_close(*found, rtol=1e-7, atol=1e-9)
    torch.manual_seed(2)
    if case not in ("issm", "gls"):
        assert not torch.equal(steps[-1](batch), found[0][0])


def moved_batch(case):
    """The batch of a case on the GPU."""
    return {name: moved(x) for name, x in make_batch(make_model(case), entries_of(case)).items()}
