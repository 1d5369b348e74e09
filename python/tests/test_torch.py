"""The adapters of PyTorch, Lightning and the Trainer in real trainings, where PyTorch is installed.

Its package for Linux brings 3 GB for GPUs, so test/python.sh does not install it:

    pip install torch lightning transformers accelerate pytest ./python
    python -m pytest -m slow python/tests/test_torch.py
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from conftest import Folder, Script

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed"),
]

RANKS = """
    import os, sys, time, torch
    rank = int(sys.argv[1])
    os.environ.update(RANK=str(rank), WORLD_SIZE="2", CURFEW_RUN_DIR=f"run-{rank}")
    torch.distributed.init_process_group("gloo", init_method="file://" + os.path.abspath("rendezvous"), rank=rank, world_size=2)
    import curfew, curfew.torch
    with curfew.save_on_sigterm(lambda: curfew.torch.save({"n": n}, f"ckpt/{rank}.pt", n)):
        for n in range(1, 100000):
            curfew.step(n)
            if n == 20 and rank == 1:
                open("run-1/stop", "w").write("{}")
            if curfew.torch.should_stop(every=5):
                break
            time.sleep(0.005)
"""


def test_ranks_stop_at_the_same_step(script: Script, tmp_path: Path) -> None:
    for rank in range(2):
        (tmp_path / f"run-{rank}").mkdir()
    for process in [script(RANKS, str(rank)) for rank in range(2)]:
        _, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
    first, second = (Folder(tmp_path / f"run-{rank}").events("saved")[0] for rank in range(2))
    assert first["step"] == second["step"] >= 20
    assert (first["rank"], second["rank"]) == (0, 1)


LIGHTNING = """
    import sys, torch, curfew, curfew.lightning
    from lightning.pytorch import Callback, LightningModule, Trainer

    class Model(LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch, index):
            return self.layer(batch).square().mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)

    class End(Callback):
        def on_train_batch_start(self, trainer, module, batch, index):
            if trainer.global_step == 7 and len(sys.argv) == 1:
                import os, signal
                os.kill(os.getpid(), signal.SIGTERM)

    with curfew.save_on_sigterm():
        trainer = Trainer(
            accelerator="cpu", max_steps=30, logger=False, enable_checkpointing=False, enable_progress_bar=False,
            callbacks=[curfew.lightning.Curfew("ckpt"), End()], plugins=[curfew.lightning.CheckpointIO()],
        )
        trainer.fit(Model(), torch.utils.data.DataLoader(torch.ones(80, 4), batch_size=2), ckpt_path=sys.argv[1] if len(sys.argv) > 1 else None)
"""


def test_lightning_saves_in_the_middle_of_an_epoch_and_goes_on(folder: Folder, script: Script, tmp_path: Path) -> None:
    pytest.importorskip("lightning")
    _, err = (process := script(LIGHTNING)).communicate(timeout=300)
    (saved,) = folder.events("saved")
    assert (saved["step"], saved["path"]) == (8, str(tmp_path / "ckpt" / "curfew-8.ckpt")), err
    assert process.returncode == 143, err
    _, err = (process := script(LIGHTNING, saved["path"])).communicate(timeout=300)
    assert process.returncode == 0, err
    steps = folder.steps()
    assert steps[steps.index(8) + 1] == 9 and steps[-1] == 30


HUGGING_FACE = """
    import sys, torch, curfew, curfew.huggingface
    from transformers import Trainer, TrainerCallback, TrainingArguments

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def forward(self, x, labels=None):
            y = self.layer(x)
            return {"loss": (y - labels).square().mean(), "logits": y}

    class End(TrainerCallback):
        def on_step_begin(self, args, state, control, **kwargs):
            if state.global_step == 7 and len(sys.argv) == 1:
                import os, signal
                os.kill(os.getpid(), signal.SIGTERM)

    trainer = Trainer(
        model=Model(),
        args=TrainingArguments(output_dir="ckpt", max_steps=30, save_steps=1000, report_to=[], use_cpu=True),
        train_dataset=[{"x": torch.ones(4), "labels": torch.zeros(1)}] * 64,
        callbacks=[curfew.huggingface.CurfewCallback(), End()],
    )
    with curfew.save_on_sigterm():
        trainer.train(resume_from_checkpoint=len(sys.argv) > 1)
"""


def test_the_trainer_saves_and_goes_on(folder: Folder, script: Script, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    _, err = (process := script(HUGGING_FACE)).communicate(timeout=300)
    assert process.returncode == 143, err
    (saved,) = folder.events("saved")
    assert (saved["step"], saved["path"]) == (8, str(tmp_path / "ckpt" / "checkpoint-8"))
    _, err = (process := script(HUGGING_FACE, "resume")).communicate(timeout=300)
    assert process.returncode == 0, err
    steps = folder.steps()
    assert steps[steps.index(8) + 1] == 9 and steps[-1] == 30
