"""Hugging Face: a callback that reports steps, declares saves and stops the Trainer.

    Trainer(callbacks=[curfew.huggingface.CurfewCallback()])
"""

from __future__ import annotations

import os
import sys
from typing import Any

from transformers import TrainerCallback

import curfew
from curfew._run import current


class CurfewCallback(TrainerCallback):
    """Reports every step, declares every save, and lets the Trainer save and stop when curfew asks for it.

    With several ranks they ask one another at every 10th step (every).
    """

    def __init__(self, *, every: int = 10) -> None:
        self._every = every

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        curfew.step(state.global_step)
        if self._should_stop():
            control.should_save = True
            control.should_training_stop = True
        return control

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        # The name that the Trainer gives the folder of a step. Every rank has its files in it,
        # and the Trainer calls this in every rank.
        path = os.path.join(args.output_dir, f"checkpoint-{state.global_step}")
        if current() is not None and os.path.isdir(path):
            curfew.save_done(path, state.global_step)
        return control

    def _should_stop(self) -> bool:
        if "torch" not in sys.modules:
            return curfew.should_stop()
        from curfew.torch import should_stop

        return should_stop(every=self._every)
