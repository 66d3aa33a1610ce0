"""Random numbers that do not depend on how many series are drawn for."""

import pytest
import torch

_NORMAL, _UNIFORM = torch.randn, torch.rand


def no_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every draw is the middle of its distribution: what is left is a deterministic function of the data."""
    monkeypatch.setattr(torch, "randn", lambda *shape, generator=None, **options: torch.zeros(*shape, **options))
    monkeypatch.setattr(
        torch, "rand", lambda *shape, generator=None, **options: torch.full(_flat(shape), 0.5, **options)
    )
    for name in ("poisson", "bernoulli", "_standard_gamma"):
        monkeypatch.setattr(torch, name, lambda mean, generator=None: mean)


def shared_noise(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """One stream of numbers for all series.

    Normal numbers are (..., series, component), or (sample, series); uniform ones end with the series.
    """
    stream = torch.Generator().manual_seed(seed)

    def randn(*shape, generator=None, **options):
        shape = _flat(shape)
        one = list(shape)
        one[-1 if len(shape) == 2 else -2] = 1
        return _NORMAL(one, generator=stream, **options).expand(shape)

    def rand(*shape, generator=None, **options):
        shape = _flat(shape)
        return _UNIFORM([*shape[:-1], 1], generator=stream, **options).expand(shape)

    monkeypatch.setattr(torch, "randn", randn)
    monkeypatch.setattr(torch, "rand", rand)


def _flat(shape: tuple) -> tuple[int, ...]:
    return tuple(shape[0]) if len(shape) == 1 and not isinstance(shape[0], int) else shape
