"""Seeded trainings and forecasts of whole models, with and without the compiled program."""

import pytest
import torch

from tests.models.cases import entries_of, make_batch, make_model
from tsforecast.core.kernels import steps


@pytest.mark.parametrize("case", ["arsgls-targets", "rsgls-issm"])
@pytest.mark.usefixtures("program")
def test_training_is_the_same_to_rounding(case, by_torch, monkeypatch):
    entries = entries_of(case)
    calls = []
    run = steps.call
    monkeypatch.setattr(steps, "call", lambda *args: [calls.append(args[0]), run(*args)][1])

    def train():
        model = make_model(case)
        batch = make_batch(model, entries)
        optimiser = torch.optim.SGD(model.parameters(), 1e-3)
        torch.manual_seed(1)
        losses = []
        for _ in range(3):
            losses.append(model.loss(batch).mean())
            optimiser.zero_grad()
            losses[-1].backward()
            optimiser.step()
        with torch.no_grad():
            belief, _ = model.filter(batch)
            paths = model.forecast(belief, batch, 5)
        return torch.stack(losses).detach(), paths

    expected = by_torch(train)
    assert not calls
    found = train()
    assert {"propose_forward", "propose_backward"} <= set(calls)
    for one, two in zip(found, expected, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-9, atol=1e-9)
