"""Lightning: a callback that reports steps and stops, and a CheckpointIO that declares saves.

    Trainer(callbacks=[curfew.lightning.Curfew("checkpoints")], plugins=[curfew.lightning.CheckpointIO()])
"""

from __future__ import annotations

import os
from typing import Any, Optional, Union

from lightning.pytorch import Callback
from lightning.pytorch.plugins.io import TorchCheckpointIO

import curfew
from curfew._agree import Agreement
from curfew._run import current


class Curfew(Callback):
    """Reports every optimizer step, and saves and stops the training when curfew asks for it.

    It saves into folder/curfew-STEP.ckpt, in the middle of an epoch too; without a folder
    it only stops. With several ranks they ask one another at every 10th batch (every).
    """

    def __init__(self, folder: Optional[Union[str, "os.PathLike[str]"]] = None, *, every: int = 10) -> None:
        super().__init__()
        self._folder = folder
        self._every = every
        self._agreement = Agreement()
        self._step = 0

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if current() is None:
            return
        if trainer.global_step != self._step:  # unless gradients are accumulated
            self._step = trainer.global_step
            curfew.step(self._step)
        if trainer.should_stop:
            return
        every = 1 if trainer.world_size == 1 else self._every
        decide = trainer.strategy.reduce_boolean_decision
        if self._agreement.should_stop(every, lambda: bool(decide(curfew.should_stop(), all=False))):
            trainer.should_stop = True
            if self._folder is not None:
                trainer.save_checkpoint(os.path.join(os.fspath(self._folder), f"curfew-{self._step}.ckpt"))


class CheckpointIO(TorchCheckpointIO):
    """Saves as Lightning does and declares every save. Wrap it in AsyncCheckpointIO to save in the background."""

    def save_checkpoint(self, checkpoint: Any, path: Any, storage_options: Optional[Any] = None) -> None:
        super().save_checkpoint(checkpoint, path, storage_options)
        curfew.save_done(path, checkpoint.get("global_step"))
