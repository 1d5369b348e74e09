"""The adapters, driven as the frameworks document it.

A framework that is not installed is a stand-in of a few lines (tests/standins), whose
signatures test_frameworks.py holds against the published source.
"""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Iterator, List

import pytest

import curfew
from curfew import _run

from conftest import Folder

STANDINS = Path(__file__).parent / "standins"


@pytest.fixture(autouse=True)
def frameworks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    ours = ("curfew.torch", "curfew.lightning", "curfew.huggingface")
    if find_spec("torch") is None:
        monkeypatch.syspath_prepend(str(STANDINS))
    before = set(sys.modules)
    yield
    # The next test imports them again, with the state that they start with.
    for name in set(sys.modules) - before:
        if name in ours or str(STANDINS) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch, frameworks: None) -> Any:
    """Other ranks of torch.distributed, which say what the test sets."""
    import torch.distributed as distributed

    others: List[int] = [0, 0]
    rounds: List[int] = []

    def all_reduce(tensor: Any, op: Any = None, group: Any = None, async_op: bool = False) -> None:
        assert op == distributed.ReduceOp.MAX
        rounds.append(int(tensor.item()))
        if any(others):
            tensor.data = torch.tensor([1]).data

    import torch

    monkeypatch.setattr(distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(distributed, "get_world_size", lambda group=None: 1 + len(others))
    monkeypatch.setattr(distributed, "get_backend", lambda group=None: "gloo")
    monkeypatch.setattr(distributed, "all_reduce", all_reduce)
    return SimpleNamespace(others=others, rounds=rounds)


def test_torch_saves_whole_files_and_declares_them(folder: Folder, tmp_path: Path) -> None:
    import torch

    import curfew.torch

    target = tmp_path / "ckpt" / "3.pt"
    curfew.torch.save({"step": 3}, target, 3)
    assert torch.load(str(target)) == {"step": 3}
    (line,) = folder.events()
    assert (line["path"], line["step"]) == (str(target), 3)
    assert os.listdir(target.parent) == ["3.pt"]


def test_torch_keeps_the_save_before_when_one_fails(folder: Folder, tmp_path: Path) -> None:
    import torch

    import curfew.torch

    target = tmp_path / "model.pt"
    curfew.torch.save({"step": 1}, target, 1)
    with pytest.raises(Exception, match="pickle|local object|lambda"):
        curfew.torch.save({"step": lambda: 2}, target, 2)
    assert torch.load(str(target)) == {"step": 1}
    assert os.listdir(tmp_path) in (["model.pt", "run"], ["run", "model.pt"])
    assert [line["step"] for line in folder.events()] == [1]


def test_torch_saves_without_a_run_too(tmp_path: Path) -> None:
    import curfew.torch

    curfew.torch.save([1], tmp_path / "model.pt")
    assert os.listdir(tmp_path) == ["model.pt"]
    assert not curfew.torch.should_stop()


def test_torch_alone_stops_by_itself(folder: Folder) -> None:
    import curfew.torch

    folder.stop()
    assert curfew.torch.should_stop()


def test_torch_ranks_stop_together(folder: Folder, ranks: Any) -> None:
    import curfew.torch

    answers = [curfew.torch.should_stop(every=4) for _ in range(6)]
    ranks.others[1] = 1  # another rank got the signal
    answers += [curfew.torch.should_stop(every=4) for _ in range(6)]
    assert answers == [False] * 8 + [True] * 4
    assert ranks.rounds == [0, 0, 0]
    assert curfew.stop_request() == curfew.StopRequest("another rank has to stop", None)


def test_torch_asks_the_others_before_it_stops(folder: Folder, ranks: Any) -> None:
    import curfew.torch

    assert not curfew.torch.should_stop(every=2)
    folder.stop()
    assert not curfew.torch.should_stop(every=2)  # the others are at this step too, and do not know
    assert curfew.torch.should_stop(every=2)
    assert ranks.rounds == [0, 1]
    with pytest.raises(ValueError, match="every is 0"):
        curfew.torch.should_stop(every=0)


class Trainer:
    """What the callback uses of Lightning's Trainer."""

    def __init__(self, world_size: int = 1) -> None:
        self.global_step = 0
        self.should_stop = False
        self.world_size = world_size
        self.saved: List[str] = []
        self.decisions: List[bool] = []
        self.strategy = SimpleNamespace(reduce_boolean_decision=self.decide)
        self.others = False

    def decide(self, decision: bool, all: bool = True) -> bool:
        assert not all
        self.decisions.append(decision)
        return decision or self.others

    def save_checkpoint(self, filepath: str) -> None:
        self.saved.append(filepath)


def test_lightning_reports_steps_and_stops(folder: Folder, quick: float) -> None:
    import curfew.lightning

    callback, trainer = curfew.lightning.Curfew("ckpt"), Trainer()
    for batch in range(6):
        if batch == 4:
            folder.stop()
        trainer.global_step = batch // 2 + 1  # two batches a step
        callback.on_train_batch_end(trainer, None, {}, None, batch)
    assert trainer.should_stop
    assert trainer.saved == [os.path.join("ckpt", "curfew-3.ckpt")]
    _run._at_exit()
    assert folder.steps()[0] == 1 and folder.steps()[-1] == 3


def test_lightning_ranks_stop_together(folder: Folder) -> None:
    import curfew.lightning

    callback, trainer = curfew.lightning.Curfew(every=3), Trainer(world_size=2)
    stopped = []
    for batch in range(7):
        trainer.others = batch >= 4
        callback.on_train_batch_end(trainer, None, {}, None, batch)
        stopped.append(trainer.should_stop)
    assert stopped == [False] * 6 + [True]
    assert len(trainer.decisions) == 3
    assert trainer.saved == []


def test_lightning_declares_what_it_saved(folder: Folder, tmp_path: Path) -> None:
    import curfew.lightning

    curfew.lightning.CheckpointIO().save_checkpoint({"global_step": 40, "epoch": 1}, str(tmp_path / "last.ckpt"))
    (line,) = folder.events()
    assert (line["path"], line["step"]) == (str(tmp_path / "last.ckpt"), 40)


def test_lightning_without_a_run(tmp_path: Path) -> None:
    import curfew.lightning

    trainer = Trainer()
    trainer.global_step = 1
    curfew.lightning.Curfew("ckpt").on_train_batch_end(trainer, None, {}, None, 0)
    assert (trainer.decisions, trainer.saved, trainer.should_stop) == ([], [], False)


def test_hugging_face_reports_declares_and_stops(folder: Folder, tmp_path: Path) -> None:
    from transformers import TrainerControl

    import curfew.huggingface

    callback, control = curfew.huggingface.CurfewCallback(), TrainerControl()
    args, state = SimpleNamespace(output_dir=str(tmp_path)), SimpleNamespace(global_step=1)
    callback.on_step_end(args, state, control, model=None)
    assert not control.should_training_stop and not control.should_save
    state.global_step = 2
    folder.stop()
    callback.on_step_end(args, state, control, model=None)
    assert control.should_training_stop and control.should_save
    callback.on_save(args, state, control)  # the Trainer saved elsewhere
    (tmp_path / "checkpoint-2").mkdir()
    callback.on_save(args, state, control)
    assert [(line["event"], line["step"]) for line in folder.events()] == [("step", 1), ("step", 2), ("saved", 2)]
    assert folder.events("saved")[0]["path"] == str(tmp_path / "checkpoint-2")


def test_hugging_face_ranks_stop_together(folder: Folder, ranks: Any) -> None:
    from transformers import TrainerControl

    import curfew.huggingface

    callback, control = curfew.huggingface.CurfewCallback(every=2), TrainerControl()
    ranks.others[0] = 1
    callback.on_step_end(SimpleNamespace(output_dir="."), SimpleNamespace(global_step=1), control)
    assert control.should_training_stop
    assert ranks.rounds == [0]
