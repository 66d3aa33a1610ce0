"""Training steps as CUDA graphs: no value steers a loss, and a graph gives what the loss gives."""

import contextlib

import lightning.pytorch as pl
import numpy as np
import pandas as pd
import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from tests.models.cases import CASES, SWITCHING, entries_of, make_batch, make_model
from tests.test_devices import moved, on_gpu
from tsforecast import StateSpaceEstimator
from tsforecast.core.linalg import contracted
from tsforecast.core.particles import switching
from tsforecast.core.torch_internals import branchless, is_branchless
from tsforecast.forecasting import training
from tsforecast.models.parts import captured
from tsforecast.models.parts.captured import SWITCH, CapturedLoss

# What makes a processor wait for a GPU, or copies to it, so that no graph can be captured.
_NAMES = ("item", "is_nonzero", "nonzero", "masked_select", "_unique2", "bincount", "lift_fresh")
_WAITING = {f"aten::{name}" for name in _NAMES}


@contextlib.contextmanager
def nothing_waits():
    """Refuses operations that a CUDA graph cannot have; gradients do others where a dispatch mode looks at them."""
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        yield
    names = {event.name() for event in profiled.profiler.kineto_results.events()}
    if names & _WAITING:  # to find who called takes seconds; a processor's solutions of linear systems look at sizes
        found = {(e.name, e.cpu_parent.name if e.cpu_parent else "") for e in profiled.events() if e.name in _WAITING}
        assert not {called for called in found if not called[1].startswith("aten::linalg_")}


def _reads_a_value(x):
    return x.sum() if x[0] > 0 else -x.sum()


@pytest.mark.parametrize(
    "steered",
    [
        _reads_a_value,
        lambda x: x[x > 0].sum(),
        lambda x: (x * torch.tensor([1.0, 2.0])).sum(),
        lambda x: x.cumprod(0).sum(),  # its gradient looks for zeros
        lambda x: x.sum() * torch.bincount(x.detach().long()).sum(),
    ],
)
def test_what_waits_is_found(steered):
    x = torch.ones(2, requires_grad=True)
    with pytest.raises(AssertionError), nothing_waits():
        torch.autograd.grad(steered(x), x)
    with nothing_waits():
        torch.autograd.grad((2 * x).exp().sum(), x)


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
        with nothing_waits():
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
    with branchless(), nothing_waits():
        found = contracted(matrix)
        (found_bar,) = torch.autograd.grad(found, matrix, cotangent)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(found_bar[:50], bar[:50])  # of equal singular values the gradient is not unique
    assert found_bar.isfinite().all()


def trained(**options):
    """The weights of a small model after eight steps."""
    values = np.random.default_rng(0).normal(size=60).cumsum()
    data = [{"start": pd.Period("2024-01-01", "D"), "target": values, "item_id": "a"}]
    options = {"max_epochs": 2, **options}
    estimator = StateSpaceEstimator(
        "gls", "D", 4, seed=0, state_dim=2, context_length=20, num_batches_per_epoch=4, trainer_kwargs=options
    )
    return estimator.train_model(data).trained_net.state_dict()


@pytest.mark.parametrize("outcome", ["graph", "nan", "waits"])
def test_a_training_repeats_steps_and_asks_eager_code_where_it_must(outcome, monkeypatch, caplog):
    """Of graphs there is here only what a training does with them: without random numbers it gives the same weights."""
    expected = trained(accelerator="cpu")
    captures = []

    def capture(step, inputs, allow_unused_input):
        captures.append(step)
        return (lambda *inputs: step(*inputs) * torch.nan) if outcome == "nan" else step

    monkeypatch.setattr(training, "_has_graphs", lambda trainer: True)
    monkeypatch.setattr(
        captured, "_reason_to_wait", lambda step, inputs: "a value is read" if outcome == "waits" else ""
    )
    monkeypatch.setattr(torch.cuda, "make_graphed_callables", capture)
    with caplog.at_level("INFO", "tsforecast"):
        found = trained(accelerator="cpu")
    assert len(captures) == (outcome != "waits")
    assert ("training without CUDA graphs: a value is read" in caplog.text) == (outcome == "waits")
    torch.testing.assert_close(found, expected)


def test_what_cannot_be_captured_says_what_to_do(monkeypatch):
    def capture(*arguments, **options):
        raise RuntimeError("operation not permitted\nand more")

    monkeypatch.setattr(captured, "_reason_to_wait", lambda step, inputs: "")
    monkeypatch.setattr(torch.cuda, "make_graphed_callables", capture)
    model = make_model("gls")
    graphs, batch = CapturedLoss(model, model.loss), make_batch(model, entries_of("gls"))
    for _ in range(2):
        graphs.prepare(batch)
    with pytest.raises(RuntimeError, match=r"\(operation not permitted\); .* without TSFORECAST_CUDA_GRAPHS"):
        graphs.prepare(batch)


@pytest.mark.parametrize(
    ("device", "options"),
    [
        ("cpu", {}),
        ("cuda", {"devices": 2}),
        ("cuda", {"accumulate_grad_batches": 2}),
        ("cuda", {"precision": "bf16-mixed"}),
    ],
)
def test_graphs_are_for_one_gpu_and_whole_steps(device, options, monkeypatch, caplog):
    def has_graphs(device, options):
        trainer = pl.Trainer(accelerator="cpu", logger=False, enable_checkpointing=False, **options)
        monkeypatch.setattr(type(trainer.strategy), "root_device", torch.device(device))
        return training._has_graphs(trainer)

    monkeypatch.setenv(SWITCH, "1")
    caplog.set_level("INFO", "tsforecast")
    assert has_graphs("cuda", {})
    assert "graphs" not in caplog.text
    assert not has_graphs(device, options)
    assert "training without CUDA graphs: they need one GPU" in caplog.text
    monkeypatch.delenv(SWITCH)
    assert not has_graphs("cuda", {})


@on_gpu
def test_a_loss_that_reads_a_value_has_no_graph(caplog):
    model = make_model("gls").cuda()
    graphs = CapturedLoss(model, lambda batch: model.loss(batch) * (1 if batch["past_target"].sum() > 0 else 2))
    with caplog.at_level("INFO", "tsforecast"):
        steps = [graphs.prepare(moved_batch("gls")) for _ in range(4)]
    assert "called a synchronizing CUDA operation" in caplog.text
    assert steps[-1] is graphs.loss
    assert torch.cuda.get_sync_debug_mode() == 0


@on_gpu
@pytest.mark.usefixtures("unchecked_types")
def test_a_training_with_graphs_gives_the_weights_of_one_without(monkeypatch):
    found = trained(accelerator="gpu")
    monkeypatch.setenv(SWITCH, "1")
    torch.testing.assert_close(trained(accelerator="gpu"), found, rtol=1e-4, atol=1e-5)


@on_gpu
@pytest.mark.usefixtures("unchecked_types")  # a check of types keeps the last tensors, and what they were computed from
@pytest.mark.parametrize("case", CASES)
def test_a_graph_gives_the_loss_and_its_gradients(case):
    model = make_model(case).cuda()
    batch = moved_batch(case)
    graphs = CapturedLoss(model, model.loss)
    steps = [graphs.prepare(batch) for _ in range(3)]
    assert graphs._graphs
    found = []
    for step in (steps[0], steps[-1]):
        torch.manual_seed(1)
        model.zero_grad()
        loss = step(batch)
        loss.mean().backward()
        found.append((loss.detach().clone(), [p.grad.clone() for p in model.parameters() if p.grad is not None]))
    torch.testing.assert_close(*found, rtol=1e-7, atol=1e-9)
    torch.manual_seed(2)
    if case in SWITCHING:
        assert not torch.equal(steps[-1](batch), found[0][0])


def moved_batch(case):
    """The batch of a case on the GPU."""
    return {name: moved(x) for name, x in make_batch(make_model(case), entries_of(case)).items()}
