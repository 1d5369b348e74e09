"""Orbax: saves of a CheckpointManager are declared once they are committed."""

from __future__ import annotations

import os
import threading
from typing import Any, Optional, Union

import curfew
from curfew._run import current, log


def save(manager: Any, step: int, *args: Any, **kwargs: Any) -> bool:
    """Calls manager.save, and declares the save once it is committed. Returns what save returns."""
    saved = bool(manager.save(step, *args, **kwargs))
    if saved:
        saving(manager, step)
    return saved


def saving(manager: Any, step: int, path: Optional[Union[str, "os.PathLike[str]"]] = None) -> None:
    """Declares the save of step that manager.save has started, once Orbax has committed it.

    It returns at once; a thread waits for Orbax. Close the manager before the script ends:
    Orbax gives up a save that is under way when Python exits. A save that fails is not
    declared: Orbax raises its error at its next call. path is for managers that name the
    folders of steps in their own way.

    AsyncOptions.post_finalization_callback does not do, as Orbax calls it before the folder
    has its final name.
    """
    if current() is None:
        return
    folder = os.path.join(os.fspath(manager.directory), str(step)) if path is None else path
    threading.Thread(target=_declare, args=(manager, step, folder), name=f"curfew-save-{step}").start()


def _declare(manager: Any, step: int, path: Union[str, "os.PathLike[str]"]) -> None:
    try:
        manager.wait_until_finished()
        curfew.save_done(path, step)
    except Exception as error:  # Orbax raises errors of every kind
        log.warning("the save of step %d is not declared: %s", step, error)
