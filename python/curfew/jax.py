"""JAX: processes of one training stop at the same step. Saves by Orbax: see curfew.orbax."""

from __future__ import annotations

import jax
import numpy as np
from jax.experimental import multihost_utils

import curfew
from curfew._agree import Agreement, stop_here
from curfew._run import current

_agreement = Agreement()
_preempted = False


def should_stop(step: int, *, every: int = 10) -> bool:
    """Returns whether the training has to save and stop after this step, the same in every process.

    Call it once per step, with the same steps in every process. With several processes they
    ask one another at every 10th call (every), and the preemption service of JAX, which
    takes SIGTERM itself after jax.distributed.initialize, decides as well.
    """
    global _preempted
    if current() is None:
        return False
    if jax.process_count() == 1:
        return curfew.should_stop()
    if not _preempted:
        try:
            _preempted = bool(multihost_utils.reached_preemption_sync_point(step))
        except RuntimeError:  # the service is turned off
            pass
        if _preempted:
            stop_here()
    return _preempted or _agreement.should_stop(every, _any_process)


def _any_process() -> bool:
    return bool(np.any(multihost_utils.process_allgather(np.array(curfew.should_stop()))))
