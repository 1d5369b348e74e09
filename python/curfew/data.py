"""Keeps the position of a data loader in the checkpoint, so that no batch is repeated or skipped.

A loader takes part by one of two protocols:

- ``state_dict()`` and ``load_state_dict(state)``, as torchdata's ``StatefulDataLoader`` and
  :class:`Batches` have them;
- ``get_state()`` and ``set_state(state)``, as iterators of Grain for JAX have them.

Save the position with the model, into the same folder and before ``curfew.save_done``::

    batches = curfew.data.Batches(lambda epoch: shuffled(files, seed=epoch))
    curfew.data.load(batches, folder)            # False at the first start
    for batch in batches:
        train(batch)
        if time_to_save():
            save_model(folder)
            curfew.data.save(batches, folder)
            curfew.save_done(folder, step)

The position is that of the batches handed out, so save it between two of them.
"""

from __future__ import annotations

import inspect
import itertools
import os
import pickle
import tempfile
from typing import Any, Callable, Dict, Iterable, Iterator, Optional, Union

from curfew._run import rank

__all__ = ["Batches", "load", "save"]

_Path = Union[str, "os.PathLike[str]"]


class Batches:
    """Batches of epochs that go on where an earlier process was.

    make(epoch) returns the batches of an epoch, the same ones in the same order each time.
    make(epoch, start) leaves out the first ones itself; otherwise they are read and dropped.
    epochs bounds their number; None goes on forever.
    """

    def __init__(self, make: Callable[..., Iterable[Any]], epochs: Optional[int] = None) -> None:
        self._make = make
        self._skips = len(inspect.signature(make).parameters) > 1
        self.epochs = epochs
        self.epoch = 0
        self.index = 0  # batches of the epoch that were handed out

    def __iter__(self) -> Iterator[Any]:
        while self.epochs is None or self.epoch < self.epochs:
            start = self.index
            if self._skips:
                rest = iter(self._make(self.epoch, start))
            else:
                rest = itertools.islice(iter(self._make(self.epoch)), start, None)
            for batch in rest:
                self.index += 1
                yield batch
            if self.index == 0:
                raise ValueError(f"epoch {self.epoch} has no batch")
            self.epoch, self.index = self.epoch + 1, 0

    def state_dict(self) -> Dict[str, int]:
        """Returns the position."""
        return {"epoch": self.epoch, "index": self.index}

    def load_state_dict(self, state: Dict[str, int]) -> None:
        """Goes to a position. Iterators that exist already do not follow."""
        self.epoch, self.index = int(state["epoch"]), int(state["index"])


def save(loader: Any, folder: _Path) -> None:
    """Saves the position of a loader in a folder of a checkpoint, for this rank.

    The file is never half written. Raises TypeError for a loader without either protocol.
    """
    if hasattr(loader, "state_dict"):
        state = loader.state_dict()
    elif hasattr(loader, "get_state"):
        state = loader.get_state()
    else:
        raise TypeError(f"{type(loader).__name__} has neither state_dict nor get_state")
    os.makedirs(folder, exist_ok=True)
    fd, temporary = tempfile.mkstemp(prefix=".saving-", dir=folder)
    try:
        with os.fdopen(fd, "wb") as file:
            pickle.dump(state, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, _file(folder))
    except BaseException:
        os.unlink(temporary)
        raise


def load(loader: Any, folder: _Path) -> bool:
    """Goes to the position that save left in a folder. Returns False where there is none.

    Like torch.load of a model it unpickles the file, so load your own checkpoints alone.
    """
    try:
        with open(_file(folder), "rb") as file:
            state = pickle.load(file)
    except FileNotFoundError:
        return False
    if hasattr(loader, "load_state_dict"):
        loader.load_state_dict(state)
    elif hasattr(loader, "set_state"):
        loader.set_state(state)
    else:
        raise TypeError(f"{type(loader).__name__} has neither load_state_dict nor set_state")
    return True


def _file(folder: _Path) -> str:
    return os.path.join(os.fspath(folder), f"data-{rank() or 0}.pkl")
