"""The terminal screen of ``pmtpy top``, with Textual. The only module that imports it.

Sensors are looked at by a thread of this module's own, so that a driver that hangs leaves the keys alive; the screen is
drawn by Textual's. A line is drawn anew only where its text changed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import signal
import threading
from collections.abc import Callable
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.screen import ModalScreen
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widgets import Footer, Input, Static

from pmtpy.core.clock import HOST_CLOCK, NS_PER_S
from pmtpy.errors import PmtError
from pmtpy.live.lines import Order, Tone, Written, duration, screen
from pmtpy.live.recording import Recorder
from pmtpy.live.watch import Look, Watch

_STYLES = {
    Tone.HEAD: Style(bold=True, underline=True),
    Tone.PLAIN: Style(bold=True),
    Tone.PART: Style(),
    Tone.GONE: Style(dim=True, italic=True),
    Tone.TOTAL: Style(bold=True, color="green"),
    Tone.NOTE: Style(color="yellow"),
}
_EMPTY = Style()  # what has none at all cannot be shown without colours (Textual 8.2)
_FOOTER = 64  # columns that the names of the keys take with blanks around them
_ENDS = ("SIGINT", "SIGTERM", "SIGHUP")
_HELP = """\
q, Ctrl-C   quit; Ctrl-Z leaves it for a while, fg comes back
space       freeze the screen; the measuring goes on
r           reset: joules, seconds, losses and coverage count from now
m           mark: asks for a label and puts it on the instant of Enter, in the device's own stream
            where it can
s           sort by watts, by joules, or as named; parts stay below their whole
d           dump: start or stop recording every sensor into a file
? or h      this help

A part stands below the whole that contains it: never add both. mean, min and max are over the
last {window}. age is that of the newest value. % cov is the share of the time since the
start for which energy is known. Grey: the sensor is lost; it comes back by itself.
"""


class Lines(ScrollView):
    """Lines of text that scroll below the first, which names the columns; only those that changed are drawn."""

    def __init__(self) -> None:
        super().__init__(id="powers")
        self.lines: list[Written] = []
        self._room = Size(0, 0)

    def show_lines(self, lines: list[Written]) -> None:
        """Replace the lines."""
        old, self.lines = self.lines, lines
        size = Size(self.scrollable_content_region.width, len(lines))
        if size != self._room:
            self._room = self.virtual_size = size
            self.refresh()
            return
        top = self.scroll_offset.y
        changed = [i and i - top for i, (a, b) in enumerate(zip(old, lines, strict=True)) if a != b]
        if changed:
            self.refresh(*(Region(0, y, self.size.width, 1) for y in changed if 0 <= y < self.size.height))

    def action_page_down(self) -> None:
        """Go on by as many lines as there are below the first."""
        self.scroll_relative(y=max(1, self.size.height - 1))

    def action_page_up(self) -> None:
        """Go back by as many."""
        self.scroll_relative(y=-max(1, self.size.height - 1))

    def render_line(self, y: int) -> Strip:
        """Return one line as Textual draws it."""
        i = y and y + self.scroll_offset.y
        width = self.scrollable_content_region.width
        if i >= len(self.lines):
            return Strip.blank(width, _EMPTY)
        line = self.lines[i]
        return Strip([Segment(line.text, _STYLES[line.tone])]).adjust_cell_length(width, _EMPTY)


class AskLabel(ModalScreen[str]):
    """Asks for the label of a mark."""

    BINDINGS = [Binding("escape", "dismiss('')", "cancel")]  # noqa: RUF012  (Textual's own way)
    CSS = "AskLabel {align: center middle;} #label {width: 60; max-width: 100%;}"

    def compose(self) -> ComposeResult:
        """Make one line to type in."""
        asked = Input(placeholder="label of the mark; Esc cancels", id="label")
        asked.border_title = "label of the mark (set at Enter; Esc cancels)"
        yield asked

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Give the label back."""
        self.dismiss(event.value)


class Help(ModalScreen[None]):
    """Says what the keys do."""

    BINDINGS = [Binding("escape,q,h,question_mark,enter,space", "dismiss(None)", "close")]  # noqa: RUF012
    CSS = "Help {align: center middle;} #help {width: auto; height: auto; padding: 1 2; border: round $primary;}"

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def compose(self) -> ComposeResult:
        """Show the text."""
        yield Static(self._text, id="help", markup=False)


class TopApp(App[int]):
    """The screen.

    Parameters
    ----------
    period_s : float
        Between two looks.
    limit_s : float, optional
        The screen closes by itself after this time.
    """

    TITLE = "pmtpy top"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #head {height: 1; text-style: bold;}
    #powers {overflow-x: hidden;}
    #notes {height: auto; max-height: 25%; color: $text-muted;}
    #said {height: auto; max-height: 25%; color: $warning;}
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "end", "quit"),
        Binding("ctrl+c", "end", "quit", show=False, priority=True),
        Binding("ctrl+z", "suspend_process", "suspend", show=False, priority=True),
        Binding("space", "freeze", "freeze"),
        Binding("r", "reset", "reset"),
        Binding("m", "mark", "mark"),
        Binding("s", "sort", "sort"),
        Binding("d", "dump", "dump"),
        Binding("question_mark,h", "help", "help", key_display="?"),
    ]

    def __init__(
        self, watch: Watch, recorder: Recorder, period_s: float = 1.0, *, limit_s: float | None = None
    ) -> None:
        super().__init__()
        self._watch, self._recorder, self._period_s = watch, recorder, period_s
        self._orders: queue.SimpleQueue[Callable[[], str]] = queue.SimpleQueue()  # for the thread that looks
        self._over = threading.Event()
        self._wake = threading.Event()  # orders are waiting, or it is over
        self._limit_s = limit_s
        self._order = Order.SENSORS
        self._frozen = False
        self._latest: Look | None = None
        self._thread = threading.Thread(target=self._looking, name="pmtpy-top", daemon=True)

    # -- the screen ------------------------------------------------------------------------------------------------

    def compose(self) -> ComposeResult:
        """Make the parts of the screen."""
        yield Static(id="head", markup=False)
        yield Lines()
        yield Static(id="notes", markup=False)
        yield Static(id="said", markup=False)
        yield Footer()

    def on_mount(self) -> None:
        """Begin to look, and hear when the program is asked to end."""
        loop = asyncio.get_running_loop()
        for name in _ENDS:
            with contextlib.suppress(AttributeError, NotImplementedError, ValueError, RuntimeError):
                number = getattr(signal, name)
                if signal.getsignal(number) is not signal.SIG_IGN:  # nohup wants it to go on
                    loop.add_signal_handler(number, self._asked_to_end, number)
        if self._limit_s is not None:
            self.set_timer(self._limit_s, self.action_end)
        self._thread.start()

    def _asked_to_end(self, number: int) -> None:
        """End with the status of a signal."""
        if number == getattr(signal, "SIGHUP", None) and not os.isatty(0):
            # The terminal is gone (the signal may also be sent by hand). Textual would wait for ever for what it wrote
            # there: files and devices are closed here, and nothing is left to restore.
            if self._recorder.running:
                self._recorder.stop()
            for sensor in self._watch.sensors:
                with contextlib.suppress(PmtError):
                    sensor.close()
            os._exit(128 + number)
        self.exit(128 + number)

    def on_unmount(self) -> None:
        """Let the looking thread end; it is not waited for, a driver may hold it."""
        self._over.set()
        self._wake.set()

    def on_resize(self) -> None:
        """Draw for the new width."""
        self.query_one(Footer).compact = self.size.width < _FOOTER
        self._draw()

    def show(self, look: Look) -> None:
        """Take a look over; drawn unless the screen is frozen."""
        if not self._frozen:
            self._latest = look
            self._draw()

    def _draw(self) -> None:
        look = self._latest
        if look is None or not self.is_running or not self.query("#powers"):
            return
        shown = self.query_one(Lines)
        width = shown.scrollable_content_region.width  # less than the screen's where a bar to scroll by stands beside
        state = "  FROZEN" if self._frozen else ""
        state += "  RECORDING" if self._recorder.running else ""
        window = duration(self._watch.window_s)
        since = "reset" if look.was_reset else "start"
        head = (
            f"pmtpy top   {duration(look.seconds)} since {since}   mean, min, max over {window}   {self._order.value}"
        )
        self.query_one("#head", Static).update(head + state, layout=False)  # its size stays
        shown.show_lines(screen(look, max(1, width - 1), self._order))
        notes = "\n".join(f"note: {n}" for n in look.notes)
        self._say("#notes", notes)

    def _say(self, where: str, text: str) -> None:
        widget = self.query_one(where, Static)
        if getattr(widget, "said", None) != text:
            widget.said = text  # drawn only where it changed
            widget.update(text)

    # -- keys ------------------------------------------------------------------------------------------------------

    def action_end(self) -> None:
        """Quit."""
        self.exit(0)

    def action_freeze(self) -> None:
        """Stop drawing, or go on."""
        self._frozen = not self._frozen
        self._draw()

    def action_reset(self) -> None:
        """Count from now on."""

        def done() -> str:
            self._watch.reset()
            return ""

        self._have_done(done)

    def action_sort(self) -> None:
        """Sort otherwise."""
        orders = list(Order)
        self._order = orders[(orders.index(self._order) + 1) % len(orders)]
        self._draw()

    def action_mark(self) -> None:
        """Ask for a label, and put it on the instant at which it is given."""

        def given(label: str | None) -> None:
            if label:
                self._have_done(lambda: self._marked(label))

        self.push_screen(AskLabel(), given)

    def action_dump(self) -> None:
        """Start or stop recording."""
        self._have_done(lambda: self._recorder.stop() if self._recorder.running else self._recorder.start())

    def action_help(self) -> None:
        """Show what the keys do."""
        self.push_screen(Help(_HELP.format(window=duration(self._watch.window_s))))

    def _have_done(self, order: Callable[[], str]) -> None:
        """Let the thread that looks do something now, and show what it says."""
        self._orders.put(order)
        self._wake.set()

    def _marked(self, label: str) -> str:
        problems = []
        for sensor in self._watch.sensors:
            try:
                sensor.mark(label)
            except PmtError as error:  # noqa: PERF203  (the others can be marked)
                problems.append(str(error))
        return "; ".join([f"marked {label}", *problems])

    # -- looking ---------------------------------------------------------------------------------------------------

    def _looking(self) -> None:
        """Look until the end; in the thread."""
        next_ns = HOST_CLOCK.now_ns()
        try:
            while not self._over.is_set():
                self._wake.clear()
                with contextlib.suppress(queue.Empty):
                    while True:
                        said = self._orders.get_nowait()()
                        self._tell(lambda said=said: self._say("#said", said))  # type: ignore[misc]
                if HOST_CLOCK.now_ns() >= next_ns:
                    look = self._watch.look()
                    self._tell(lambda look=look: self.show(look))  # type: ignore[misc]
                    next_ns = max(next_ns + round(self._period_s * NS_PER_S), HOST_CLOCK.now_ns())
                HOST_CLOCK.wait_until(next_ns, self._wake)
        except BaseException as error:  # noqa: BLE001  (a thread has nobody to raise to: the screen does)
            self._tell(lambda error=error: _raise(error))  # type: ignore[misc]

    def _tell(self, what: Callable[[], None]) -> None:
        """Have something done by the screen's thread, without waiting for it."""
        loop = self._loop
        if loop is not None and not self._over.is_set():
            with contextlib.suppress(RuntimeError):  # the screen has just been closed
                loop.call_soon_threadsafe(self._called, what)

    def _called(self, what: Callable[[], None]) -> None:
        try:
            with self._context():
                what()
        except Exception as error:  # noqa: BLE001
            self._handle_exception(error)


def _raise(error: BaseException) -> None:
    raise error


def show_top(watch: Watch, recorder: Recorder, *, limit_s: float | None = None) -> int:
    """Show the screen until the user ends it, or the time is over; return the exit status."""
    app = TopApp(watch, recorder, limit_s=limit_s)
    try:
        status = app.run()
    finally:
        if recorder.running:
            recorder.stop()
    return app.return_code or 0 if status is None else status
