"""The callback of Lightning, as documented."""

from typing import Any


class Callback:
    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        pass
