"""The CheckpointIO of Lightning, as documented."""

import pickle
from typing import Any, Dict, Optional


class TorchCheckpointIO:
    def save_checkpoint(self, checkpoint: Dict[str, Any], path: Any, storage_options: Optional[Any] = None) -> None:
        with open(path, "wb") as file:
            pickle.dump(checkpoint, file)
