"""Which of Python's interpreters this is: sensors are opened in the main one only.

At the end of a program the others may be ended when the main one already is. What then lets another thread run, as a
file that is closed does, has the main thread exit in its midst (``take_gil`` in ``Python/ceval_gil.h``, CPython 3.11),
and a process with other threads, which numpy begins, lasts for ever. Isolated ones may have no threads, nor processes.
"""

from __future__ import annotations

from pmtpy.errors import BackendUnavailableError

_INSTEAD = "measure in the main interpreter (mod_wsgi: WSGIApplicationGroup %{GLOBAL}), or in a process of its own"


def require_main_interpreter(backend: str) -> None:
    """Raise BackendUnavailableError in a sub-interpreter."""
    if not _is_main():
        raise BackendUnavailableError(backend, "sensors cannot be opened in a sub-interpreter of Python", _INSTEAD)


def _is_main() -> bool:
    try:
        import ctypes

        interface = ctypes.pythonapi
    except (ImportError, AttributeError):  # a Python without it, which has no sub-interpreters that load numpy either
        return True
    identity = ctypes.PYFUNCTYPE(ctypes.c_void_p)
    here, main = (identity((f"PyInterpreterState_{name}", interface)) for name in ("Get", "Main"))
    return bool(here() == main())
