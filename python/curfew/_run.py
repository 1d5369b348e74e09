"""The run folder: lines of JSON that the training appends, and the file that asks it to stop."""

from __future__ import annotations

import atexit
import json
import logging
import operator
import os
import sys
import threading
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Dict, Optional, Tuple, Union

log = logging.getLogger("curfew")

# Seconds between two lines of steps, and between two looks for the stop file.
INTERVAL = 1.0

# Launchers name the rank of a process in these: torchrun, Open MPI, Slurm.
_RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")


@dataclass(frozen=True)
class StopRequest:
    """Why the training has to stop, and by when its last save has to be complete."""

    reason: str
    by: Optional[datetime]  # None: not known


def rank() -> Optional[int]:
    """Returns the rank of this process, or None if no launcher named one."""
    for name in _RANKS:
        value = os.environ.get(name, "")
        if value.isdecimal():
            return int(value)
    # Asking JAX for its process index would start its backend, which is too early before
    # jax.distributed.initialize. So ask only where that has happened.
    distributed = getattr(sys.modules.get("jax"), "distributed", None)
    if distributed is not None and distributed.is_initialized():
        return int(sys.modules["jax"].process_index())
    return None


class Run:
    """What this process says about one run. Every method may be called from any thread."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        # Reentrant, as a signal handler of the script may declare a save at any place.
        self._lock = threading.RLock()
        # The newest step that is not written: step, monotonic time, whether any rank writes.
        self._newest: Optional[Tuple[int, float, bool]] = None
        self._step_due = float("-inf")
        self._waiting = False
        self._warned = False
        self._look_due = float("-inf")
        self._stop: Optional[StopRequest] = None

    def step(self, n: int, every_rank: bool) -> None:
        now = time.monotonic()
        self._newest = (operator.index(n), now, every_rank)
        if not self._waiting:
            self._write_or_wait(now)

    def _write_or_wait(self, now: float) -> None:
        with self._lock:
            if self._waiting:
                return
            if now >= self._step_due:
                self.flush()
                return
            self._waiting = True
            timer = threading.Timer(self._step_due - now, self._waited)
            timer.daemon = True
            try:
                timer.start()
            except RuntimeError:  # no thread to be had, or Python is exiting
                self._waited()

    def _waited(self) -> None:
        with self._lock:
            # Before the newest step is taken: one that comes later starts a timer of its own.
            self._waiting = False
            self.flush()

    def flush(self) -> None:
        """Writes the newest step, if it is not written."""
        with self._lock:
            newest, self._newest = self._newest, None
            if newest is None:
                return
            self._step_due = time.monotonic() + INTERVAL
            n, then, every_rank = newest
            number = rank()
            if number and not every_rank:
                return
            line: Dict[str, Any] = {"event": "step", "step": n}
            try:
                self._append(line, number, time.time() - (time.monotonic() - then))
            except OSError as error:
                if not self._warned:
                    self._warned = True
                    log.warning("write step %d to %s: %s; later steps may be missing too", n, self._folder, error)

    def save_done(self, path: Union[str, "os.PathLike[str]"], step: Optional[int]) -> None:
        whole = os.path.abspath(os.fspath(path))
        number = None if step is None else operator.index(step)
        _sync_tree(whole)
        _sync(os.path.dirname(whole))
        self.flush()
        line: Dict[str, Any] = {"event": "saved", "path": whole}
        if number is not None:
            line["step"] = number
        with self._lock:
            self._append(line, rank(), time.time(), durable=True)

    def _append(self, line: Dict[str, Any], number: Optional[int], at: float, durable: bool = False) -> None:
        """Appends a line by one write, which other processes cannot split."""
        if number is not None:
            line["rank"] = number
        moment = datetime.fromtimestamp(at, timezone.utc)
        line["at"] = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        data = json.dumps(line).encode() + b"\n"
        os.makedirs(self._folder, exist_ok=True)
        fd = os.open(os.path.join(self._folder, "events.jsonl"), os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            # A full disk or a crash may have left half a line: this one starts after it.
            size = os.fstat(fd).st_size
            if size and os.pread(fd, 1, size - 1) != b"\n":
                data = b"\n" + data
            if os.write(fd, data) != len(data):
                raise OSError("only a part of the line was written")
            if durable:
                os.fsync(fd)
        finally:
            os.close(fd)
        if durable:
            _sync(self._folder)

    def ask(self, request: StopRequest) -> None:
        """Asks the training to stop, from inside of it. Takes no lock: signal handlers call it."""
        if self._stop is None:
            self._stop = request

    def stop_request(self) -> Optional[StopRequest]:
        if self._stop is None:
            now = time.monotonic()
            if now >= self._look_due:
                self._look_due = now + INTERVAL
                self._stop = self._read_stop()
        return self._stop

    def _read_stop(self) -> Optional[StopRequest]:
        name = os.path.join(self._folder, "stop")
        try:
            os.stat(name)
        except OSError:
            return None
        # That the file is there is the request. What it says may be missing.
        try:
            with open(name, encoding="utf-8") as file:
                said = json.load(file)
            return StopRequest(str(said.get("reason", "")), _moment(said.get("by")))
        except (OSError, ValueError, AttributeError):
            return StopRequest("", None)


def _moment(text: object) -> Optional[datetime]:
    """Returns the time that an RFC 3339 text names, or None."""
    if not isinstance(text, str):
        return None
    # Python 3.9 and 3.10 read neither Z nor nanoseconds.
    whole, dot, rest = text.replace("Z", "+00:00").replace("z", "+00:00").partition(".")
    if dot:
        digits = len(rest) - len(rest.lstrip("0123456789"))
        whole += "." + rest[:digits][:6].ljust(6, "0") + rest[digits:]
    try:
        moment = datetime.fromisoformat(whole)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None


def _sync_tree(path: str) -> None:
    """Flushes every file and folder below path to disk, and path last. Links are not followed."""
    if os.path.isdir(path) and not os.path.islink(path):
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    _sync_tree(entry.path)
                elif entry.is_file(follow_symlinks=False):
                    _sync(entry.path)
    _sync(path)


def _sync(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


_run: Optional[Run] = None
_read = False


def current() -> Optional[Run]:
    """Returns the run of this process, or None where CURFEW_RUN_DIR is not set."""
    global _run, _read
    if not _read:
        folder = os.environ.get("CURFEW_RUN_DIR", "")
        _run = Run(os.path.abspath(folder)) if folder else None
        _read = True
    return _run


def forget() -> None:
    """Makes the next call read CURFEW_RUN_DIR again."""
    global _run, _read
    _run, _read = None, False


def _at_exit() -> None:
    if _run is not None:
        _run.flush()


atexit.register(_at_exit)
# The child of a fork has none of the threads, and its parent writes the step that waits.
os.register_at_fork(after_in_child=forget)
