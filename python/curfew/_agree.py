"""Ranks decide together, at a step that all of them reach."""

from __future__ import annotations

from typing import Callable

from curfew._run import StopRequest, current


def stop_here() -> None:
    """Lets this rank stop as well, where another one has to: its last save follows from that."""
    run = current()
    if run is not None:
        run.ask(StopRequest("another rank has to stop", None))


class Agreement:
    """Asks every rank whether to stop, at every nth call of any rank."""

    def __init__(self) -> None:
        self._calls = 0
        self._stop = False

    def should_stop(self, every: int, any_rank: Callable[[], bool]) -> bool:
        """Calls any_rank, which all ranks take part in, at every nth call, until it is true."""
        if every < 1:
            raise ValueError(f"every is {every}: it must be 1 or more")
        if not self._stop and self._calls % every == 0:
            self._stop = any_rank()
            if self._stop:
                stop_here()
        self._calls += 1
        return self._stop
