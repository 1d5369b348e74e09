"""Every Python block of the documents, run as it stands: in a run, and without one."""

from __future__ import annotations

import os
import re
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any, List

import pytest

from conftest import Folder, Script

ROOT = Path(__file__).parents[2]
FRAMEWORKS = ("jax", "torch", "lightning", "transformers")


def blocks() -> List[Any]:
    found = []
    for page in ("python/README.md", "docs/training.md"):
        text = (ROOT / page).read_text()
        for n, block in enumerate(re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)):
            needs = [name for name in FRAMEWORKS if re.search(rf"^(?:import|from) {name}\b", block, re.M)]
            found.append(pytest.param(block, needs, id=f"{page}:{'-'.join(needs) or n}", marks=[pytest.mark.slow] if needs else []))
    return found


@pytest.mark.parametrize(("block", "needs"), blocks())
@pytest.mark.parametrize("run", [True, False], ids=["in a run", "alone"])
def test_blocks_of_the_documents(
    block: str, needs: List[str], run: bool, folder: Folder, script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "lightning" in needs:
        needs = ["torch", *needs]
    for name in needs:
        if find_spec(name) is None:
            pytest.skip(f"{name} is not installed")
    if not run:
        monkeypatch.delenv("CURFEW_RUN_DIR")
    process = script(block)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    if not run:
        assert folder.events() == []
        return
    saved = folder.events("saved")
    assert len(saved) >= 3
    assert all(os.path.exists(line["path"]) for line in saved[-1:])
    assert saved[-1]["step"] == folder.steps()[-1] >= 60

    # Again, asked to stop: it goes on from its save, if it does, and saves before it ends.
    (folder.path / "stop").write_text("{}")
    process = script(block)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 0, err


@pytest.mark.slow
@pytest.mark.parametrize("end", ["stop file", "SIGTERM"])
def test_the_example_goes_on_from_its_save(folder: Folder, script: Script, end: str) -> None:
    if find_spec("jax") is None:
        pytest.skip("jax is not installed")
    example = (ROOT / "examples" / "training" / "train.py").read_text()
    process = script(example, "--steps", "1000000", "--every", "1000000")
    while len(folder.events()) < 2:
        assert process.poll() is None
        time.sleep(0.02)
    if end == "SIGTERM":
        process.terminate()
    else:
        (folder.path / "stop").write_text("{}")
    out, err = process.communicate(timeout=300)
    assert process.returncode == (143 if end == "SIGTERM" else 0), err
    last, saved = folder.events()[-2:]
    assert last["step"] == saved["step"]
    (folder.path / "stop").unlink(missing_ok=True)
    events = len(folder.events())
    steps = str(saved["step"] + 20)
    parts, err = script(example, "--steps", steps, "--every", steps).communicate(timeout=300)
    assert folder.events()[events]["step"] == saved["step"] + 1, err
    whole, err = script(example, "--dir", "whole", "--steps", steps, "--every", steps).communicate(timeout=300)
    assert parts == whole != "", err
