"""Devices by name."""

import torch


def find_device(name: str | torch.device) -> torch.device:
    """Return a device of this machine; "auto" is a GPU where there is one.

    Raises:
        ValueError: If there is no such device.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()  # a name may be right and the device not there
    except (RuntimeError, AssertionError) as error:
        there = ["cpu", *(f"cuda:{number}" for number in range(torch.cuda.device_count()))]
        raise ValueError(
            f"there is no device {str(name)!r} here; expected auto or one of {', '.join(there)}"
        ) from error
    return device
