"""What does a step of SVGD cost beside gradients of one network, and what does it cost to fuse beliefs?

    python benchmarks/particles.py        # prints; a minute on one core

"svgd" and "s2vgd" are steps of M particles over an MLP 13-50-1 with a batch of 100, as times the M gradients of the
same log-posterior, one network after the other, in one run. "fuse" is seconds for beliefs of LOFI with rank 10, and
times the copying of their columns. Seconds are of the CPU, the least of several turns.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from tsforecast.learners import LOFI, GaussianLikelihood, LowRankPrecision, fuse, s2vgd, svgd


def seconds(call: Callable[[], Any], turns: int = 7, repeats: int = 5) -> float:
    """Return the least seconds of a call."""
    call()
    found = []
    for _ in range(turns):
        began = time.process_time()
        for _ in range(repeats):
            call()
        found.append((time.process_time() - began) / repeats)
    return min(found)


def of_step(make: Any, count: int) -> tuple[float, float]:
    """Return seconds of a step of the particles, and of their gradients one by one."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(13, 50), nn.ReLU(), nn.Linear(50, 1))
    learner = make(network, GaussianLikelihood(1.0), num_particles=count, learns_noise=True)
    belief = learner.keep(learner.init(), torch.randn(100, 13), torch.randn(100, 1))
    points, scale = learner.draw(belief)
    posterior = learner.posterior

    def one_by_one() -> None:
        for k in range(count):
            values = belief.values[k].clone().requires_grad_()
            total = posterior.log_prior(values) + posterior.log_likelihood(values, points).sum()
            torch.autograd.grad(total, values)

    step = seconds(lambda: learner.descend(belief.values, belief.moments, points, scale, 1e-3))
    return step, seconds(one_by_one, 5, 1)


def of_fusion(count: int, size: int) -> tuple[float, float]:
    """Return seconds to fuse, and to copy all columns."""
    prior = LOFI(10).init(torch.zeros(size), torch.ones(size))
    beliefs = [LowRankPrecision(torch.randn(size), 1 + torch.rand(size), torch.randn(10, size).T) for _ in range(count)]
    copied = seconds(lambda: torch.cat([belief.factor.T for belief in beliefs]), 3, 1)
    return seconds(lambda: fuse(beliefs, prior), 3, 1), copied


def main() -> None:
    """Prints all rows."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    torch.set_num_threads(1)
    for name, make in (("svgd", svgd), ("s2vgd", s2vgd)):
        for count in (5, 20, 50):
            step, gradients = of_step(make, count)
            print(f"{name}: {count} particles, {1e3 * step:.2f} ms a step, {step / gradients:.2f} x {count} gradients")
    for count, size in ((2, 100_000), (8, 100_000), (32, 10_000), (32, 100_000)):
        took, copied = of_fusion(count, size)
        print(f"fuse: {count} beliefs of {size} weights, {took:.3f} s, {took / copied:.1f} x a copy of their columns")


if __name__ == "__main__":
    main()
