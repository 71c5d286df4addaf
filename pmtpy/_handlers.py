"""Exceptions that a signal's handler raised, in the midst of whatever the main thread was at.

They are the program's own (a time limit, a request to stop), and come out as themselves: whoever takes failures of a
driver for something else asks here first.
"""

from __future__ import annotations


def of_a_handler(error: BaseException) -> bool:
    """Whether a handler raised it: Python gives it the frame that it interrupts, as nobody else is given one."""
    trace = error.__traceback__
    while trace is not None:
        interrupted = trace.tb_frame.f_back
        for given in trace.tb_frame.f_locals.values() if interrupted is not None else ():
            some = given if isinstance(given, tuple) else (given,)
            if any(one is interrupted for one in some):
                return True
        trace = trace.tb_next
    return False


def let_out(error: BaseException) -> None:
    """Raise what a handler raised, of the errors that one was raised from; return if none of them came so."""
    cause = error.__cause__
    while cause is not None and not of_a_handler(cause):
        cause = cause.__cause__
    if cause is None:
        return
    before = cause.__context__
    try:
        raise cause
    finally:
        cause.__context__ = before  # else each of the two would have come out of the other
