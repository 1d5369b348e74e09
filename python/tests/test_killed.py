"""A real training, wrapped with curfew checkpoint, loses nothing however often it is killed.

CURFEW_KILLS and CURFEW_SEED set how often and when.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any, Dict, List, Optional

import pytest

from conftest import Folder

ROOT = Path(__file__).parents[2]
CURFEW = ROOT / "bin" / "curfew"
KILLS = int(os.environ.get("CURFEW_KILLS", "10"))
SEED = int(os.environ.get("CURFEW_SEED", "1"))


class Run:
    """The run as a person sees it: by the commands, on the store that survives the machines."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = (folder / "store").as_uri()
        self.environment = {
            **os.environ,
            "HOME": str(folder),
            "JAX_COMPILATION_CACHE_DIR": str(folder / "compiled"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            # On one thread every sum is taken in the same order, so that weights can be compared.
            "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
        }
        self.environment.pop("CURFEW_RUN_DIR", None)

    def curfew(self, *args: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [str(CURFEW), "checkpoint", *args, "-o", "json"],
            env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )

    def said(self, *args: str) -> Dict[str, Any]:
        process = self.curfew(*args)
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, (args, process.returncode, out, err)
        return json.loads(out)  # type: ignore[no-any-return]

    def newest_step(self) -> Optional[int]:
        """Returns the step that the newest complete manifest names."""
        if not (self.folder / "store").exists():
            return None
        complete = [s for s in self.said("list", self.url)["snapshots"] if s["state"] == "complete"]
        return max(complete, key=lambda s: s["seq"])["step"] if complete else None

    def train(self, folder: Path, events: Path, *args: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, str(ROOT / "examples" / "training" / "train.py"), "--dir", str(folder), *args],
            env={**self.environment, "CURFEW_RUN_DIR": str(events)}, stdout=subprocess.PIPE, text=True,
        )


class Machine:
    """One machine: the training, and a saver that saves whenever the training declares one."""

    def __init__(self, run: Run, number: int) -> None:
        self.run = run
        self.folder = run.folder / f"machine-{number}" / "ckpt"
        self.events = Folder(run.folder / f"machine-{number}" / "run")
        self.folder.parent.mkdir()
        if run.newest_step() is not None:
            run.said("restore", run.url, str(self.folder))
        self.training = run.train(self.folder, self.events.path, "--steps", "100000000", "--every", "10")
        self.saved: List[Optional[int]] = []
        self.failed: List[str] = []
        self.lock = threading.Lock()
        self.saving: Optional["subprocess.Popen[str]"] = None
        self.lost = False
        self.saver = threading.Thread(target=self.save_whenever_declared)
        self.saver.start()

    def save_whenever_declared(self) -> None:
        seen = 0
        while True:
            declared = len(self.events.events("saved"))
            with self.lock:
                if self.lost or self.training.poll() is not None and declared == seen:
                    return
                self.saving = None
                if declared > seen:
                    self.saving = self.run.curfew("save", str(self.folder), self.run.url, "--run-dir", str(self.events.path), "--keep", "3", "--nice", "0")
            if self.saving is None:
                time.sleep(0.01)
                continue
            seen = declared
            out, err = self.saving.communicate()
            if self.saving.returncode == 0:
                self.saved.append(json.loads(out)["snapshot"]["step"])
            elif self.saving.returncode not in (5, -9):  # 5: the training replaced a file in the meantime
                self.failed.append(f"{self.saving.returncode}: {out}{err}")

    def wait_for(self, kind: str, count: int) -> List[Dict[str, Any]]:
        """Waits until the training has said so many steps or saves, and returns them."""
        end = time.monotonic() + 300
        while len(self.events.events(kind)) < count:
            assert self.training.poll() is None, "the training ended by itself"
            assert time.monotonic() < end, f"the training does not come to {kind} {count}"
            time.sleep(0.005)
        return self.events.events(kind)

    def kill(self, saver: bool) -> None:
        """Kills the training, and the saver at the same moment if the whole machine is lost."""
        with self.lock:
            self.training.kill()
            if saver:
                self.lost = True
                if self.saving is not None:
                    self.saving.kill()
        self.training.wait()
        self.saver.join()


@pytest.mark.slow
def test_killed_anywhere_it_goes_on_from_the_step_that_the_newest_manifest_names(tmp_path: Path) -> None:
    assert CURFEW.exists(), "make build"
    run, draw = Run(tmp_path), random.Random(SEED)
    how: Counter[str] = Counter()
    last = 0
    for number in range(KILLS + 1):
        step = run.newest_step() or 0
        assert step >= last, "a save that was complete is lost"
        last = step
        machine = Machine(run, number)
        try:
            assert machine.wait_for("step", 1)[0]["step"] == step + 1, number
            if number == KILLS:
                break
            machine.wait_for("saved", draw.randrange(8))
            time.sleep(draw.uniform(0, 0.3))
        finally:
            whole = draw.random() < 0.5
            machine.kill(saver=whole)
        assert machine.failed == []
        parts = len(list(machine.folder.glob(".[0-9]*/*.npy")))
        how["the machine" if whole else "the training"] += 1
        how["while it wrote a save"] += 0 < parts
        how["progress"] += bool(machine.saved)
        last = max([last, *[s for s in machine.saved if s is not None]])
    step = run.newest_step() or 0
    print(f"seed {SEED}: {KILLS} kills, {dict(how)}, newest step {step}")
    assert step > 0

    # What came of it is what a training gives that was never killed.
    restored = tmp_path / "restored"
    run.said("restore", run.url, str(restored))
    assert len(list((restored / str(step)).iterdir())) == 161
    steps = ("--steps", str(step + 10), "--every", str(step + 10))
    after, _ = run.train(restored, tmp_path / "r", *steps).communicate(timeout=600)
    never, _ = run.train(tmp_path / "never", tmp_path / "n", *steps).communicate(timeout=600)
    assert after == never != ""
