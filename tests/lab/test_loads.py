"""Loads on GPUs run on the one that is measured: with a PyTorch and a CuPy of our own, which note where they worked."""

from __future__ import annotations

import sys
import threading
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from pmtpy.core.clock import HOST_CLOCK
from pmtpy.errors import BackendUnavailableError
from pmtpy.lab._gpu_number import number_among
from pmtpy.lab.loads import gpu_load

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import Self

_UUIDS = ("0a000000-0000-0000-0000-000000000001", "0b000000-0000-0000-0000-000000000002")
_SERIAL = "GPU-0b000000-0000-0000-0000-000000000002"


@pytest.mark.parametrize(
    ("uuids", "device", "serial", "number"),
    [
        (_UUIDS, "GPU-0b", _SERIAL, 1),
        (_UUIDS, "0", _SERIAL, 1),  # the number counts by PCI address, the library the fastest first
        ((_UUIDS[0],), None, "GPU-of-nobody", 0),  # a part of a GPU (MIG) has a UUID of its own, and is alone
        (_UUIDS, "1", "GPU-of-nobody", None),
        (("", ""), "1", _SERIAL, 1),
        (("",), "0000:3b:00.0", _SERIAL, 0),
        (_UUIDS, "GPU-0c", "GPU-0c", None),
        (("", ""), "GPU-0b", _SERIAL, None),
        ((_UUIDS[0],), "GPU-0b", _SERIAL, None),  # hidden from the library
    ],
)
def test_the_number_of_a_gpu_is_told_by_its_uuid(
    uuids: tuple[str, ...], device: str | None, serial: str, number: int | None
) -> None:
    if number is None:
        with pytest.raises(BackendUnavailableError, match="cannot be told"):
            number_among(uuids, device, serial)
    else:
        assert number_among(uuids, device, serial) == number


def _torch(worked: list[int], done: threading.Event) -> ModuleType:
    torch: Any = ModuleType("torch")

    def matmul(a: int, _: int) -> None:
        worked.append(a)
        done.set()

    torch.matmul, torch.bmm = matmul, lambda *_: None
    torch.version = SimpleNamespace(hip=None)
    torch.cuda = SimpleNamespace(
        is_available=lambda: True,
        device_count=lambda: len(_UUIDS),
        synchronize=lambda _: None,
        get_device_properties=lambda i: SimpleNamespace(uuid=_UUIDS[i], multi_processor_count=1),
    )
    torch.rand = lambda _, device: _Array(int(device.partition(":")[2]))
    return torch  # type: ignore[no-any-return]


class _Array(int):
    """The number of its device."""

    def __getitem__(self, _: object) -> _Array:
        return self


def _cupy(worked: list[int], done: threading.Event) -> ModuleType:
    cupy: Any = ModuleType("cupy")
    here = [0]

    class Device:
        attributes = {"MultiProcessorCount": 1}  # noqa: RUF012  (as the library has it)

        def __init__(self, number: int) -> None:
            self._number = number

        def __enter__(self) -> Self:
            here.append(self._number)
            return self

        def __exit__(self, *_: object) -> None:
            here.pop()

    def matmul(*_: object) -> None:
        worked.append(here[-1])
        done.set()

    cupy.float32, cupy.matmul = None, matmul
    cupy.random = SimpleNamespace(rand=lambda *_, **__: np.zeros(1))
    cupy.cuda = SimpleNamespace(
        Device=Device,
        get_current_stream=lambda: SimpleNamespace(synchronize=lambda: None),
        runtime=SimpleNamespace(
            CUDARuntimeError=RuntimeError,
            getDeviceCount=lambda: len(_UUIDS),
            getDeviceProperties=lambda i: {"uuid": bytes.fromhex(_UUIDS[i].replace("-", ""))},
        ),
    )
    return cupy  # type: ignore[no-any-return]


@contextmanager
def _only(monkeypatch: pytest.MonkeyPatch, name: str, library: ModuleType) -> Iterator[None]:
    for each in ("torch", "cupy"):
        monkeypatch.setitem(sys.modules, each, library if each == name else None)
    yield


@pytest.mark.parametrize(("name", "make"), [("torch", _torch), ("cupy", _cupy)])
def test_the_load_runs_on_the_gpu_that_is_measured(monkeypatch: pytest.MonkeyPatch, name: str, make: Any) -> None:
    worked, done = list[int](), threading.Event()
    edges = np.array([0.0, 0.001])
    with _only(monkeypatch, name, make(worked, done)):
        load = gpu_load("GPU-0b", _SERIAL, edges, HOST_CLOCK)
        done.clear()
        with load:
            assert done.wait(60.0)
        with pytest.raises(BackendUnavailableError, match="cannot be told"):
            gpu_load("GPU-0c", "GPU-0c", edges, HOST_CLOCK)
    assert set(worked) == {1}
