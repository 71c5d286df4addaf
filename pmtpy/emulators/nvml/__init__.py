"""A virtual NVIDIA GPU: the real backend and the real ``pynvml``, on a driver library that is a Python object.

``pynvml`` calls its driver through attributes of one object and never asks what that object is. So a private copy of
the module, which leaves the one that the program may have imported alone, is given a
:class:`~pmtpy.emulators.nvml._driver.VirtualDriver`. The numbers come from
:class:`~pmtpy.emulators.gpu_sensor.SensorModel` on the load that all virtual sensors share.
"""

from __future__ import annotations

import importlib.util
import sys
import weakref
from dataclasses import replace
from types import ModuleType

from pmtpy._extras import missing
from pmtpy.backends.nvml import facts, open_source
from pmtpy.core.channel import Channel
from pmtpy.core.clock import Clock
from pmtpy.core.response import Response
from pmtpy.core.source import Source
from pmtpy.emulators._tree import Tree
from pmtpy.emulators._virtual_source import VirtualSource, card_of, phase_of
from pmtpy.emulators.gpu_sensor import SensorModel
from pmtpy.emulators.nvml._boards import BOARDS, Board, VirtualGpu, make_gpu
from pmtpy.emulators.nvml._driver import VirtualDriver
from pmtpy.emulators.world import shared_world

__all__ = ["BOARDS", "Board", "VirtualDriver", "VirtualGpu", "make_gpu", "open_virtual", "private_pynvml"]


def private_pynvml(driver: object) -> ModuleType:
    """Load a copy of the real ``pynvml`` of its own, bound to ``driver`` instead of libnvidia-ml.

    Raises MissingPackageError: nvidia-ml-py is not installed.
    """
    spec = importlib.util.find_spec("pynvml")
    if spec is None or spec.origin is None:
        raise missing("pynvml", "nvml", "is not installed, and the virtual GPU drives it")
    name = f"_pmtpy_pynvml_{id(driver):x}"
    own = importlib.util.spec_from_file_location(name, spec.origin)
    assert own is not None  # noqa: S101  (a file that find_spec found)
    assert own.loader is not None  # noqa: S101  (the same)
    module = importlib.util.module_from_spec(own)
    sys.modules[name] = module  # the module looks itself up while it makes its exceptions
    try:
        own.loader.exec_module(module)
    finally:
        del sys.modules[name]
    module.nvmlLib = driver  # type: ignore[attr-defined]
    return module


# Copies that nobody uses any more. ctypes keeps every pointer type that it ever made, and with it a whole copy: so they
# are used again, and a process has as many as it had virtual GPUs open at once.
_spare: list[ModuleType] = []


def _lent(driver: VirtualDriver) -> ModuleType:
    """Return a copy of ``pynvml`` bound to ``driver``."""
    try:
        module = _spare.pop()
    except IndexError:
        return private_pynvml(driver)
    module.nvmlLib = driver  # type: ignore[attr-defined]
    return module


def _given_back(module: ModuleType, driver: VirtualDriver) -> None:
    """Take a copy back from a source that is gone, as new and without the driver."""
    driver.leave()
    module.nvmlLib, module._nvmlLib_refcount = None, 0  # type: ignore[attr-defined]  # noqa: SLF001  (its own state)
    module._nvmlGetFunctionPointer_cache.clear()  # noqa: SLF001
    _spare.append(module)


def open_virtual(
    device: str | None = None,
    *,
    clock: Clock,
    load: str | None = None,
    profile: str = "h100",
    period_ms: float | None = None,
    window_ms: float | None = None,
    tau_ms: float | None = None,
    gain: float | None = None,
    offset_w: float | None = None,
    noise_w: float | None = None,
    counter_ms: float | None = None,
    total: str | None = None,
    samples: bool = False,
) -> Source:
    """Open the real backend on a virtual GPU that draws the shared load.

    Parameters
    ----------
    device : str, optional
        ``virtual``; ``virtual1``, ``virtual2``, ... are further cards of the node, each with a phase of its own.
    profile : str
        Model of GPU: one of ``BOARDS``. The default has no error of gain and thus shows the truth.
    period_ms, window_ms, tau_ms : float or None
        Update period, width of the boxcar, time constant of the low-pass; None: the profile's.
    gain, offset_w, noise_w : float or None
        Error of the sensor: reading = gain x power + offset + noise.
    counter_ms : float or None
        Period at which the energy counter moves.
    total, samples
        As for a real GPU.
    """
    card = card_of("nvml", device)
    world = shared_world(load, clock=clock)
    given = {
        "update_s": _seconds(period_ms),
        "window_s": _seconds(window_ms),
        "tau_s": _seconds(tau_ms),
        "gain": gain,
        "offset_w": offset_w,
        "noise_w": noise_w,
        "counter_update_s": _seconds(counter_ms),
    }
    gpus = [make_gpu(profile, i, {k: v for k, v in given.items() if v is not None}) for i in range(card + 1)]
    gpu = gpus[card]
    gpu.sensor = replace(gpu.sensor, phase_s=phase_of(card, gpu.sensor.update_s))
    driver = VirtualDriver(world, gpus)
    library = _lent(driver)
    tree = Tree()
    try:
        # A GPU on a module with a processor is placed by its NUMA node, which is read once.
        tree.write("bus/pci/devices/0000:3b:00.0/numa_node", 0)
        source = open_source(gpu.uuid, clock=clock, library=library, total=total, samples=samples, sysfs_root=tree.root)
    except BaseException:
        _given_back(library, driver)
        raise
    finally:
        tree.close()
    weakref.finalize(source, _given_back, library, driver).atexit = False
    # What a maker would say of this sensor, which the options may have made another than the model's.
    source.channels = tuple(_as_made(channel, gpu.sensor) for channel in source.channels)
    interval_s = min(source.traits.interval_s, max(0.005, gpu.sensor.update_s / 2))
    source.traits = replace(source.traits, interval_s=interval_s)
    return VirtualSource(source, world, leave=driver.leave)


def _as_made(channel: Channel, sensor: SensorModel) -> Channel:
    kind = channel.name.rpartition(".")[2]
    if kind == "energy":
        return channel.timed(refresh_s=sensor.counter_update_s)
    if kind == "average":
        return channel.timed(refresh_s=sensor.update_s)
    if kind != "instant":
        return channel
    rule = facts.rule(facts.Timing(sensor.update_s, sensor.window_s or None, ""))
    made = sensor.response
    return replace(channel, response=Response(made.period_s, made.window_s, made.tau_s, made.delay_s), method=rule)


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1e3
