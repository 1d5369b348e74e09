"""PyTorch: saves that are whole or absent, and ranks that stop at the same step."""

from __future__ import annotations

import os
import tempfile
from typing import Any, Optional, Union

import torch

import curfew
from curfew._agree import Agreement
from curfew._run import current

_agreement = Agreement()


def save(obj: Any, path: Union[str, "os.PathLike[str]"], step: Optional[int] = None) -> None:
    """Saves obj by torch.save into path, which is never half written, and declares it.

    It works without CURFEW_RUN_DIR too, and declares nothing then. For sharded saves call
    torch.distributed.checkpoint.save and then curfew.save_done, in every rank.
    """
    name = os.path.abspath(os.fspath(path))
    os.makedirs(os.path.dirname(name), exist_ok=True)
    fd, temporary = tempfile.mkstemp(prefix=".saving-", dir=os.path.dirname(name))
    try:
        with os.fdopen(fd, "wb") as file:
            torch.save(obj, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, name)
    except BaseException:
        os.unlink(temporary)
        raise
    curfew.save_done(name, step)


def should_stop(*, every: int = 10) -> bool:
    """Returns whether the training has to save and stop, the same in every rank.

    Call it once per step in every rank. Where torch.distributed is initialized, the ranks
    ask one another at every 10th call (every) of the default process group.
    """
    if current() is None:
        return False
    distributed = torch.distributed
    if not (distributed.is_available() and distributed.is_initialized()) or distributed.get_world_size() == 1:
        return curfew.should_stop()
    return _agreement.should_stop(every, _any_rank)


def _any_rank() -> bool:
    # NCCL reduces tensors of its GPU only, Gloo those of the CPU.
    device = "cuda" if torch.distributed.get_backend() == "nccl" else "cpu"
    stop = torch.tensor([int(curfew.should_stop())], device=device)
    torch.distributed.all_reduce(stop, op=torch.distributed.ReduceOp.MAX)
    return bool(stop.item())
