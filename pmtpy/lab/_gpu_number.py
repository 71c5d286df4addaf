"""Which of the GPUs that a library counts is the one that is measured. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from pmtpy.core.presentation import amount
from pmtpy.errors import BackendUnavailableError

_SEVERAL = 2


def number_among(uuids: Sequence[str], device: str | None, serial: str) -> int:
    """Return the number of a GPU as a library counts, by its UUID; where that does not tell, by the number asked for.

    Parameters
    ----------
    uuids : sequence of str
        Of the library's GPUs, in its order; empty where it does not say.
    device : str or None
        As the target names it: a number, a UUID, a PCI address or a part of the model's name.
    serial : str
        What the sensor that was opened says of itself.

    Raises
    ------
    BackendUnavailableError
        It is none of them, or may be any: a load would run on another GPU than the one that is measured.
    """
    known = [_digits(uuid) for uuid in uuids]
    if known.count(_digits(serial)) == 1:
        return known.index(_digits(serial))
    # Of a part of a GPU (MIG) CUDA shows one alone, with a UUID of its own.
    if (device is None or device.isdigit()) and (len(known) < _SEVERAL or not all(known)):
        return int(device or 0)
    if known == [""]:
        return 0
    raise BackendUnavailableError(
        "characterise",
        f"which of {amount(len(uuids), 'GPU')} that PyTorch or CuPy sees is {device} ({serial}) cannot be told",
        "name the GPU by the number that CUDA gives it, and see that CUDA_VISIBLE_DEVICES does not hide it",
    )


def _digits(uuid: str) -> str:
    return uuid.lower().removeprefix("gpu-").replace("-", "")
