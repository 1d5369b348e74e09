"""The adapters with the real frameworks, and the stand-ins held against their published source."""

from __future__ import annotations

import ast
import importlib.metadata
import os
import signal
import socket
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, Iterable, Iterator, List

import pytest

import curfew
from curfew import _run

from conftest import Folder, Script

pytestmark = pytest.mark.slow

STANDINS = Path(__file__).parent / "standins"


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Any]:
    import orbax.checkpoint as ocp

    with ocp.CheckpointManager(tmp_path / "ckpt", options=ocp.CheckpointManagerOptions(max_to_keep=2)) as manager:
        yield manager


def state(step: int) -> Dict[str, Any]:
    import jax.numpy as jnp

    return {"w": jnp.full((64, 64), step), "step": step}


def declared(folder: Folder, count: int) -> List[int]:
    end = time.monotonic() + 30
    while len(folder.events("saved")) < count and time.monotonic() < end:
        time.sleep(0.01)
    return [line["step"] for line in folder.events("saved")]


def test_orbax_declares_what_it_committed(folder: Folder, tmp_path: Path, manager: Any, monkeypatch: Any) -> None:
    import orbax.checkpoint as ocp

    import curfew.orbax

    there: List[bool] = []
    done = curfew.save_done

    def save_done(path: Any, step: Any = None) -> None:
        there.append(os.path.isfile(os.path.join(path, "_CHECKPOINT_METADATA")))
        done(path, step)

    monkeypatch.setattr(curfew, "save_done", save_done)
    for step in (10, 20, 30):
        assert curfew.orbax.save(manager, step, args=ocp.args.StandardSave(state(step)))
        assert declared(folder, step // 10)[-1] == step
    assert there == [True] * 3
    assert [line["path"] for line in folder.events()] == [str(tmp_path / "ckpt" / name) for name in ("10", "20", "30")]
    assert not curfew.orbax.save(manager, 30, args=ocp.args.StandardSave(state(30)))  # Orbax skips it
    assert len(folder.events()) == 3


def test_orbax_saves_that_follow_one_another_at_once(folder: Folder, manager: Any) -> None:
    import orbax.checkpoint as ocp

    import curfew.orbax

    for step in range(12):
        curfew.orbax.save(manager, step, args=ocp.args.StandardSave(state(step)))
    manager.wait_until_finished()
    end = time.monotonic() + 30
    while 11 not in declared(folder, 1) and time.monotonic() < end:
        time.sleep(0.01)
    # An old one may be gone before it could be declared; the newest never is.
    assert 11 in declared(folder, 1)


def test_orbax_declares_no_save_that_failed(folder: Folder, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    import curfew.orbax

    class Manager:
        directory = tmp_path / "ckpt"

        def save(self, step: int) -> bool:
            (self.directory / str(step)).mkdir(parents=True)
            return True

        def wait_until_finished(self) -> None:
            raise ValueError("disk full")

    before = set(threading.enumerate())
    curfew.orbax.save(Manager(), 5)
    for thread in set(threading.enumerate()) - before:
        thread.join()
    assert folder.events() == []
    assert "the save of step 5 is not declared: disk full" in caplog.text


def test_the_last_save_of_a_script_is_declared(folder: Folder, script: Script) -> None:
    process = script(
        """
        import os, jax.numpy as jnp, orbax.checkpoint as ocp, curfew.orbax
        manager = ocp.CheckpointManager(os.path.abspath("ckpt"))
        curfew.orbax.save(manager, 7, args=ocp.args.StandardSave({"w": jnp.ones((512, 512))}))
        manager.close()
        """
    )
    _, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert [line["step"] for line in folder.events("saved")] == [7]


TWO = """
    import os, sys, time, logging, jax
    rank, port = int(sys.argv[1]), sys.argv[2]
    os.environ["CURFEW_RUN_DIR"] = os.path.abspath(f"run-{rank}")
    jax.distributed.initialize(f"127.0.0.1:{port}", num_processes=2, process_id=rank)
    import curfew, curfew.jax
    with curfew.save_on_sigterm() as sigterm:
        for n in range(1, 4000):
            curfew.step(n)
            if n == 20:
                print("says", sigterm.why_not, flush=True)
            if curfew.jax.should_stop(n, every=5):
                break
            time.sleep(0.005)
    curfew.step(n)
    print("says", n, flush=True)
"""


def says(lines: Iterable[str]) -> str:
    """Returns what the script says next. Libraries print other lines in between."""
    return next(line[5:].strip() for line in lines if line.startswith("says "))


@pytest.mark.parametrize("how", ["stop file", "SIGTERM"])
def test_two_processes_of_jax_stop_at_the_same_step(script: Script, tmp_path: Path, how: str) -> None:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = str(s.getsockname()[1])
    processes = [script(TWO, str(rank), port) for rank in range(2)]
    for process in processes:
        assert process.stdout is not None
        assert says(process.stdout) == "code outside of Python handles SIGTERM"
    if how == "SIGTERM":
        processes[1].send_signal(signal.SIGTERM)
    else:
        (tmp_path / "run-1").mkdir(exist_ok=True)
        (tmp_path / "run-1" / "stop").write_text("{}")
    ends = []
    for process in processes:
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        ends.append(int(says(out.splitlines())))
    assert ends[0] == ends[1] < 3999
    # Only process 0 says its steps.
    assert Folder(tmp_path / "run-0").steps()[-1] == ends[0]
    assert Folder(tmp_path / "run-1").steps() == []


def test_the_callbacks_of_transformers(folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers.trainer_callback import CallbackHandler, TrainerControl, TrainerState

    import curfew.huggingface

    handler = CallbackHandler([curfew.huggingface.CurfewCallback()], None, None, None, None)
    state, control = TrainerState(), TrainerControl()
    args: Any = SimpleNamespace(output_dir=str(tmp_path))
    for state.global_step in range(1, 6):
        if state.global_step == 5:
            folder.stop()
        control = handler.on_step_begin(args, state, control)
        control = handler.on_step_end(args, state, control)
    assert control.should_training_stop and control.should_save
    (tmp_path / "checkpoint-5").mkdir()
    control = handler.on_save(args, state, control)
    assert not control.should_save
    assert [(line["event"], line["step"]) for line in folder.events()] == [("step", 1), ("step", 5), ("saved", 5)]


def parameters(source: Path, owner: str, name: str) -> List[str]:
    """Returns the parameters of a function or method in a file, which is only parsed."""
    tree: Any = ast.parse(source.read_text())
    if owner:
        (tree,) = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == owner]
    (function,) = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name]
    arguments = function.args
    return [a.arg for a in arguments.args] + [a.arg for a in arguments.kwonlyargs] + ([f"**{arguments.kwarg.arg}"] if arguments.kwarg else [])


@pytest.mark.parametrize(
    ("package", "file", "standin", "owner", "name"),
    [
        ("lightning", "lightning/pytorch/callbacks/callback.py", "lightning/pytorch/__init__.py", "Callback", "on_train_batch_end"),
        ("lightning", "lightning/fabric/plugins/io/torch_io.py", "lightning/pytorch/plugins/io.py", "TorchCheckpointIO", "save_checkpoint"),
        ("transformers", "transformers/trainer_callback.py", "transformers/__init__.py", "TrainerCallback", "on_step_end"),
        ("transformers", "transformers/trainer_callback.py", "transformers/__init__.py", "TrainerCallback", "on_save"),
    ],
)
def test_standins_have_the_published_signatures(package: str, file: str, standin: str, owner: str, name: str) -> None:
    published = Path(str(importlib.metadata.distribution(package).locate_file(file)))
    assert parameters(STANDINS / standin, owner, name) == parameters(published, owner, name)


def test_what_the_adapters_use_of_the_trainers_is_there() -> None:
    def of(package: str, file: str) -> str:
        return Path(str(importlib.metadata.distribution(package).locate_file(file))).read_text()

    trainer = of("lightning", "lightning/pytorch/trainer/trainer.py")
    for name in ("def global_step(self)", "def world_size(self)", "def save_checkpoint(", "self.should_stop = False"):
        assert name in trainer
    assert '"global_step": ' in of("lightning", "lightning/pytorch/trainer/connectors/checkpoint_connector.py")
    strategy = Path(str(importlib.metadata.distribution("lightning").locate_file("lightning/pytorch/strategies/strategy.py")))
    assert parameters(strategy, "Strategy", "reduce_boolean_decision") == ["self", "decision", "all"]
    assert 'PREFIX_CHECKPOINT_DIR = "checkpoint"' in of("transformers", "transformers/trainer_utils.py")
    saving = of("transformers", "transformers/trainer.py")
    assert 'f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"' in saving
    assert saving.index("self._save_checkpoint(model, trial)") < saving.index("self.callback_handler.on_save(")
