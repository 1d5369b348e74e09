"""A SIGTERM becomes a request to stop, and the script saves before it ends."""

from __future__ import annotations

import ctypes
import os
import signal
from types import FrameType, TracebackType
from typing import Any, Callable, Optional, Type

from curfew._run import StopRequest, current, log


class save_on_sigterm:
    """Makes a SIGTERM inside of the block set should_stop() instead of ending the process.

    The loop in the block has to ask should_stop() and leave. When the block ends without an
    exception and a stop was asked for, by SIGTERM or by curfew, save is called once. Then
    what the SIGTERM would have done happens, after an exception too: where nothing handled
    it, Python exits with status 143, never with 0.

    A handler that was there before is never lost. It is called at once, as before; if it
    raises, as handlers that end the process do, that waits for the end of the block. When
    the block ends it is put back, unless another handler was set on top in the meantime.
    So a library may use it inside of a program that uses it too. It does not count in forks.

    Python sets signal handlers on the main thread only. Elsewhere, and where code outside of
    Python handles SIGTERM (the preemption service of JAX does), nothing is set: armed is
    false, why_not says why, and a warning is logged. Without CURFEW_RUN_DIR it does nothing.
    """

    def __init__(self, save: Optional[Callable[[], object]] = None) -> None:
        self._save = save
        self._previous: Any = None
        self._process = 0
        self._received = False
        self._raised: Optional[BaseException] = None
        self.armed = False
        self.why_not = ""

    def __enter__(self) -> "save_on_sigterm":
        if current() is None:
            self.why_not = "CURFEW_RUN_DIR is not set"
            return self
        if _is_native():
            self.why_not = "code outside of Python handles SIGTERM"
        else:
            # All is in place before the handler is, as the signal may come at once.
            self._previous, self._process, self.armed = signal.getsignal(signal.SIGTERM), os.getpid(), True
            try:
                signal.signal(signal.SIGTERM, self._handle)
            except ValueError as error:  # not on the main thread
                self.why_not, self.armed = str(error), False
        if not self.armed:
            log.warning("SIGTERM does not set should_stop(): %s", self.why_not)
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        run = current()
        try:
            if run is not None and kind is None and self._save is not None and run.stop_request() is not None:
                self._save()
        finally:
            if run is not None:
                run.flush()
            # A handler that was set on top may call this one: it stays then, and passes on.
            if self.armed and signal.getsignal(signal.SIGTERM) == self._handle:
                signal.signal(signal.SIGTERM, self._previous)
            self.armed = False
        # Lightning ends the process with status 0 after SIGTERM, which would look complete.
        success = isinstance(error, SystemExit) and not error.code
        if kind is not None and not issubclass(kind, Exception) and not success:
            return  # the process is ending already
        end = self._raised
        if end is None and self._received and self._previous == signal.SIG_DFL:
            end = SystemExit(128 + signal.SIGTERM)
        if end is not None:
            if error is not None and not success:
                log.error("not saved, as the training failed after SIGTERM", exc_info=error)
            raise end

    def _handle(self, number: int, frame: Optional[FrameType]) -> None:
        # It runs between any two instructions of the main thread: no locks, no logging.
        if os.getpid() != self._process:
            # A fork, such as a worker that loads data, ends at SIGTERM as if it had no handler.
            signal.signal(signal.SIGTERM, self._previous)
            os.kill(os.getpid(), signal.SIGTERM)
            return
        if not self.armed and self._previous == signal.SIG_DFL:
            raise SystemExit(128 + number)
        if self.armed:
            self._received = True
            run = current()
            if run is not None:
                run.ask(StopRequest("SIGTERM", None))
        if callable(self._previous):
            try:
                self._previous(number, frame)
            except BaseException as error:
                if not self.armed:
                    raise
                self._raised = error


def _is_native() -> bool:
    """Returns whether code outside of Python set the handler of SIGTERM.

    Python does not know of such a handler and would replace it for good, so it is read from
    the system.
    """
    if signal.getsignal(signal.SIGTERM) is None:  # set before Python started
        return True
    try:
        handler = _handler_of(signal.SIGTERM)
        if handler in (int(signal.SIG_DFL), int(signal.SIG_IGN)):
            return False
        return not callable(signal.getsignal(signal.SIGTERM)) or handler != _handler_in_python()
    except (OSError, AttributeError, TypeError, ValueError):
        return False


def _handler_of(number: signal.Signals) -> int:
    """Returns the address of the handler of a signal, as the system has it."""
    action = (ctypes.c_size_t * 64)()
    if ctypes.CDLL(None).sigaction(int(number), None, action) != 0:
        raise OSError(f"read the handler of {number.name}")
    return action[0]  # the first word of struct sigaction on Linux and macOS


def _handler_in_python() -> int:
    """Returns the address that all handlers in Python share.

    SIGINT usually has one. Where it has none, as in the background of a shell script, SIGURG
    gets one for a moment: what has no handler there ignores it. It raises ValueError where
    that cannot be done.
    """
    if callable(signal.getsignal(signal.SIGINT)):
        return _handler_of(signal.SIGINT)
    if _handler_of(signal.SIGURG) != int(signal.SIG_DFL):
        raise ValueError("SIGURG has a handler")
    signal.signal(signal.SIGURG, lambda *_: None)
    try:
        return _handler_of(signal.SIGURG)
    finally:
        signal.signal(signal.SIGURG, signal.SIG_DFL)
