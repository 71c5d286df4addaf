"""Linear algebra of verbs that analyse recordings: by one thread, whatever the machine has."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """Let NumPy and SciPy multiply by one thread in this with-statement, and not the commands that it starts.

    Matrices are small here: more threads wait for each other. ``pmtpy compare`` of a million rows took 1.3 to 1.6 times
    the processor time by two, and longer, beside other work. What is not loaded yet could not be bound, and where a
    package is missing the verb itself says so.
    """
    try:
        import scipy.linalg  # noqa: F401
        from threadpoolctl import threadpool_limits
    except ModuleNotFoundError:
        yield
        return
    with threadpool_limits(1, "blas"):
        yield
