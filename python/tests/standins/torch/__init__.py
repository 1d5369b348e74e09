"""What curfew.torch uses of PyTorch, for a machine without it."""

import pickle
from typing import Any

from torch import distributed as distributed


def save(
    obj: object,
    f: Any,
    pickle_module: Any = pickle,
    pickle_protocol: int = 2,
    _use_new_zipfile_serialization: bool = True,
    _disable_byteorder_record: bool = False,
) -> None:
    pickle.dump(obj, f)


def load(f: Any) -> Any:
    with open(f, "rb") as file:
        return pickle.load(file)


class tensor:
    def __init__(self, data: Any, device: Any = None) -> None:
        self.data = data

    def item(self) -> Any:
        return self.data[0]
