"""Models and learners on a GPU, where there is one."""

import dataclasses
from typing import Any

import pytest
import torch

from tests.decisions.test_bandit import config, environment
from tests.learners.test_network import NAMES, learners, streams
from tests.models.cases import CASES, LINEAR, entries_of, make_batch, make_model
from tests.oracles import generator
from tsforecast.core.torch_internals import normal
from tsforecast.decisions import Bandit, load_bandit, save_bandit
from tsforecast.learners.loop import run

on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")


def moved(value: Any) -> Any:
    """The same on the GPU, with all that it holds."""
    if isinstance(value, torch.Tensor):
        return value.cuda()
    if isinstance(value, torch.nn.Module):
        return value.cuda()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        own = {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.init}
        return dataclasses.replace(value, **{name: moved(part) for name, part in own.items()})
    return value


def test_normal_numbers_do_not_depend_on_where_they_go(float64):
    like = torch.zeros(2, device="meta")
    assert normal((3, 2), like, generator(0)).device.type == "meta"
    assert torch.equal(normal((3, 2), torch.zeros(1), generator(0)), torch.randn(3, 2, generator=generator(0)))


@on_gpu
@pytest.mark.parametrize("case", CASES)
def test_a_model_trains_and_forecasts_on_a_gpu_as_on_a_cpu(case):
    """Without random numbers losses are the same to rounding; else they are finite, as are all gradients."""
    model, batch = make_model(case), make_batch(make_model(case), entries_of(case))
    expected = model.loss(batch).detach()
    model = model.cuda()
    batch = {name: x.cuda() if isinstance(x, torch.Tensor) else x for name, x in batch.items()}
    loss = model.loss(batch)
    loss.mean().backward()
    if case in LINEAR:
        torch.testing.assert_close(loss.detach().cpu(), expected, rtol=1e-9, atol=1e-9)
    assert loss.isfinite().all()
    assert all(x.grad.isfinite().all() for x in model.parameters() if x.grad is not None)
    with torch.no_grad():
        belief, _ = model.filter(batch)
        assert model.forecast(belief, batch, 5).isfinite().all()


@on_gpu
@pytest.mark.parametrize("name", NAMES)
def test_a_learner_learns_on_a_gpu_what_it_learns_on_a_cpu(name, float64):
    learner = learners()[name]
    data = [x[0] for x in streams(name, 1)]
    expected, predicted = run(learner, learner.init(), *data, generator=generator(0))
    other = moved(learner)
    found, prediction = run(other, other.init(), *(x.cuda() for x in data), generator=generator(0))
    torch.testing.assert_close(prediction.log_prob.cpu(), predicted.log_prob, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(other.variances(found).cpu(), learner.variances(expected), rtol=1e-6, atol=1e-9)
    assert other.sample(found, 3, generator(1)).isfinite().all()  # factors differ in their signs


@on_gpu
@pytest.mark.parametrize("agent", ["ekf", "iterated-ekf", "lofi", "stein"])
def test_an_agent_learns_on_a_gpu_what_it_learns_on_a_cpu_and_goes_on_there(agent, tmp_path):
    agents = [Bandit(config(agent, device=device)) for device in ("cpu", "cuda")]
    rounds = environment()
    for t, context in enumerate(rounds.contexts):
        for bandit in agents:
            assert bandit.choose(context) in range(3)
            bandit.learn(context, t % 3, rounds.rewards[t, t % 3].item())
    for bandit in agents:
        assert float(bandit.chances(torch.ones(2)).value.sum()) == pytest.approx(1)
    save_bandit(agents[1], tmp_path / "agent.pt")
    expected, found, loaded = (
        bandit.model.expect(bandit.standing.state, torch.ones(2))
        for bandit in (*agents, load_bandit(tmp_path / "agent.pt"))
    )
    assert (found.mean.device.type, loaded.mean.device.type) == ("cuda", "cpu")
    torch.testing.assert_close(found.mean.cpu(), expected.mean, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(loaded.mean, found.mean.cpu(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(loaded.sd, found.sd.cpu(), rtol=1e-3, atol=1e-4)
