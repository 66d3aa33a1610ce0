"""Buffers of rounds: what they keep, in which order."""

import torch

from tsforecast.decisions import Buffer, History


def test_a_buffer_keeps_the_last_rounds_in_order():
    buffer = Buffer.empty(3, 1)
    for k in range(5):
        buffer = buffer.add(torch.tensor([float(k)]), k % 2, torch.tensor(float(k)))
        assert len(buffer) == min(k + 1, 3)
    seen = buffer.interactions()
    assert seen.rewards.tolist() == [2, 3, 4]
    assert seen.arms.tolist() == [0, 1, 0]
    assert seen.contexts[:, 0].tolist() == [2, 3, 4]


def test_a_memory_for_each_arm_keeps_what_a_common_one_forgets():
    history = History.empty(8, 1)
    for k, arm in enumerate([0, 1, 1, 0, 1, 1, 1, 2]):
        history = history.add(torch.zeros(1), arm, torch.tensor(float(k)))
    assert history.merged(2, each_arm=True).seen.rewards.tolist() == [0, 3, 5, 6, 7]
    assert history.merged(2).seen.rewards.tolist() == [6, 7]
    assert history.merged(0, each_arm=True).seen.rewards.tolist() == [*range(8)]
