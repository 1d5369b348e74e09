"""Tells curfew how far a training is and which saves are complete, and stops it in time.

Everything here does nothing where the environment has no ``CURFEW_RUN_DIR``, so a script
runs the same on a laptop. curfew sets that variable for the trainings that it runs. See
docs/training.md for the guarantees and for what is written.
"""

from __future__ import annotations

import os
from typing import Optional, Union

from curfew._run import StopRequest, current
from curfew._sigterm import save_on_sigterm

__all__ = ["StopRequest", "save_done", "save_on_sigterm", "should_stop", "step", "stop_request"]


def step(n: int, *, every_rank: bool = False) -> None:
    """Says that step n is complete. Call it once per step: it costs under a microsecond.

    At most one line per second is written, always with the newest step. The newest step is
    written within a second, before a save is declared, and when Python exits. A process
    that is killed may lose the steps of its last second. Only rank 0 writes, unless
    every_rank is true.

    n is an integer of Python or NumPy; an array on an accelerator would wait for it.
    Raises TypeError for anything else. A line that cannot be written is logged, once.
    """
    run = current()
    if run is not None:
        run.step(n, every_rank)


def save_done(path: Union[str, "os.PathLike[str]"], step: Optional[int] = None) -> None:
    """Says that the file or folder at path is a complete save, of the state after step.

    It first flushes every file and folder below path, and the folder that holds path, to
    disk, and then writes the line. So call it when nothing writes there any more. Each rank
    declares the path that it wrote.

    Raises OSError if path does not exist or cannot be flushed: then it is no save.
    """
    run = current()
    if run is not None:
        run.save_done(path, step)


def should_stop() -> bool:
    """Returns whether the training has to save and stop. Once true, it stays true.

    It is true after a SIGTERM inside of save_on_sigterm, and once curfew has asked for the
    end, for example before the machine is taken away. It looks for that at most once per
    second. Ranks may see it at different steps: the adapters make them agree.
    """
    run = current()
    return run is not None and run.stop_request() is not None


def stop_request() -> Optional[StopRequest]:
    """Returns why and until when the training has to stop, or None if it does not have to."""
    run = current()
    return None if run is None else run.stop_request()
