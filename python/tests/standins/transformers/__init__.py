"""The callback of the Hugging Face Trainer, as documented."""

from dataclasses import dataclass
from typing import Any


@dataclass
class TrainerControl:
    should_training_stop: bool = False
    should_epoch_stop: bool = False
    should_save: bool = False


class TrainerCallback:
    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        pass

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        pass
