"""No process group, as in a process that no launcher started."""

from typing import Any


class ReduceOp:
    MAX = "max"


def is_available() -> bool:
    return True


def is_initialized() -> bool:
    return False


def get_world_size(group: Any = None) -> int:
    return -1


def get_backend(group: Any = None) -> str:
    raise ValueError("Default process group has not been initialized")


def all_reduce(tensor: Any, op: Any = ReduceOp.MAX, group: Any = None, async_op: bool = False) -> None:
    raise ValueError("Default process group has not been initialized")
