from __future__ import annotations

import json
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List

import pytest

from curfew import _run

Script = Callable[..., "subprocess.Popen[str]"]


class Folder:
    """A run folder, read as curfew reads it: a line counts when its newline is there."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = path / "events.jsonl"

    def events(self, kind: str = "") -> List[Dict[str, Any]]:
        if not self.file.exists():
            return []
        whole = self.file.read_bytes().rpartition(b"\n")[0]
        lines = [json.loads(line) for line in whole.split(b"\n") if line]
        return [line for line in lines if kind in ("", line["event"])]

    def steps(self) -> List[int]:
        return [line["step"] for line in self.events("step")]

    def stop(self) -> None:
        """Asks this process to stop, and lets it look at once."""
        (self.path / "stop").write_text("{}")
        run = _run.current()
        assert run is not None
        run._look_due = 0


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No run, no rank and no handler of an earlier test or of the caller."""
    for name in ("CURFEW_RUN_DIR", *_run._RANKS):
        monkeypatch.delenv(name, raising=False)
    _run.forget()
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)
    _run.forget()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    """This process is in a run."""
    run = tmp_path / "run"
    run.mkdir()
    monkeypatch.setenv("CURFEW_RUN_DIR", str(run))
    return Folder(run)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> float:
    """A shorter wait between lines, and between looks for the stop file."""
    monkeypatch.setattr(_run, "INTERVAL", 0.05)
    return 0.05


@pytest.fixture
def script(tmp_path: Path) -> Iterator[Script]:
    """Starts Python with a script; what still runs at the end of the test is killed."""
    started: List["subprocess.Popen[str]"] = []

    def start(text: str, *args: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(text), *args],
            cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()
