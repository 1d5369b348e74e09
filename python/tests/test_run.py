from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
import timeit
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, List, Optional, Tuple

import pytest

import curfew
from curfew import _run

from conftest import Folder, Script


def wait_for(what: Any, seconds: float = 5) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.005)


def test_without_a_run_nothing_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    threads = threading.active_count()
    for n in range(100):
        curfew.step(n)
    curfew.save_done("missing", 1)
    before = signal.getsignal(signal.SIGTERM)
    with curfew.save_on_sigterm(lambda: pytest.fail("saved")) as sigterm:
        assert signal.getsignal(signal.SIGTERM) == before
        assert (sigterm.armed, sigterm.why_not) == (False, "CURFEW_RUN_DIR is not set")
    assert not curfew.should_stop()
    assert curfew.stop_request() is None
    assert os.listdir(tmp_path) == []
    assert threading.active_count() == threads


def test_the_first_step_is_written_at_once_and_then_the_newest(folder: Folder, quick: float) -> None:
    before = datetime.now(timezone.utc)
    curfew.step(0)
    first = folder.events()
    assert [sorted(line) for line in first] == [["at", "event", "step"]]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", first[0]["at"])
    assert abs(datetime.fromisoformat(first[0]["at"].replace("Z", "+00:00")) - before) < timedelta(seconds=1)
    for n in range(1, 1000):
        curfew.step(n)
    wait_for(lambda: folder.steps()[-1] == 999)
    # One line per interval at most, so far fewer than there were steps.
    steps = folder.steps()
    assert len(steps) < 200
    assert steps == sorted(set(steps))


def test_a_step_costs_little(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def nanoseconds() -> float:
        curfew.step(1)
        return min(timeit.repeat(lambda: curfew.step(2), number=1000, repeat=100)) * 1e6

    alone = nanoseconds()
    monkeypatch.setenv("CURFEW_RUN_DIR", str(tmp_path))
    _run.forget()
    in_a_run = nanoseconds()
    print(f"a step costs {in_a_run:.0f} ns, {alone:.0f} ns without a run")
    # About 200 and 60 on a machine of 2026: this finds a system call or a lock in each step.
    assert in_a_run < 2000 and alone < 1000


def test_lines_are_a_second_apart(folder: Folder) -> None:
    start = time.monotonic()
    n = 0
    while time.monotonic() < start + 1.2:
        n += 1
        curfew.step(n)
        time.sleep(0.001)
    wait_for(lambda: folder.steps()[-1] == n)
    assert 2 <= len(folder.steps()) <= 1 + (time.monotonic() - start)


def test_the_line_has_the_time_of_its_step(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_run, "INTERVAL", 0.3)
    curfew.step(1)
    curfew.step(2)
    after = datetime.now(timezone.utc)
    wait_for(lambda: folder.steps() == [1, 2])
    assert datetime.fromisoformat(folder.events()[1]["at"].replace("Z", "+00:00")) <= after


def test_the_last_step_is_written_when_python_exits(folder: Folder, script: Script) -> None:
    out, err = script("import curfew\nfor n in range(500): curfew.step(n)").communicate(timeout=20)
    assert (out, err) == ("", "")
    assert folder.steps()[-1] == 499


@pytest.mark.parametrize("bad", ["12", 1.5, None])
def test_a_step_is_an_integer(folder: Folder, bad: Any) -> None:
    with pytest.raises(TypeError):
        curfew.step(bad)
    with pytest.raises(TypeError):
        curfew.save_done(folder.path, "12")  # type: ignore[arg-type]
    assert folder.events() == []


def test_a_step_that_cannot_be_written_does_not_stop_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick: float, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CURFEW_RUN_DIR", str(tmp_path / "file" / "run"))
    with caplog.at_level(logging.WARNING, "curfew"):
        for n in range(5):
            curfew.step(n)
            time.sleep(quick)
    assert [record.getMessage()[:12] for record in caplog.records] == ["write step 0"]
    with pytest.raises(OSError):
        curfew.save_done(tmp_path / "file", 1)


def test_steps_from_several_threads(folder: Folder, quick: float) -> None:
    threads = [threading.Thread(target=lambda k: [curfew.step(n) for n in range(k, 4000, 4)], args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    curfew.step(4000)
    wait_for(lambda: folder.steps()[-1] == 4000)


def test_several_processes_write_whole_lines(folder: Folder, script: Script, tmp_path: Path) -> None:
    (tmp_path / "save").write_text("x")
    text = """
        import sys, curfew
        sys.stdin.readline()
        for n in range(20):
            curfew.step(n)
            curfew.save_done("save", int(sys.argv[1]) * 1000 + n)
    """
    writers = [script(text, str(k)) for k in range(4)]
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    for writer in writers:
        out, err = writer.communicate(timeout=60)
        assert writer.returncode == 0, err
    saved = [line["step"] for line in folder.events("saved")]
    assert sorted(saved) == [k * 1000 + n for k in range(4) for n in range(20)]


def test_a_line_starts_after_half_a_line(folder: Folder, tmp_path: Path) -> None:
    folder.file.write_bytes(b'{"event":"step","step":1}\n{"event":"st')
    curfew.step(7)
    assert folder.file.read_bytes().split(b"\n")[:2] == [b'{"event":"step","step":1}', b'{"event":"st']
    assert b'"step": 7' in folder.file.read_bytes().split(b"\n")[2]


def test_a_save_is_flushed_before_it_is_declared(
    folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = tmp_path / "ckpt" / "12"
    for name in ("a", "deep/er/b", "deep/c"):
        (save / name).parent.mkdir(parents=True, exist_ok=True)
        (save / name).write_text(name)
    (save / "link").symlink_to("a")
    (save / "gone").symlink_to("nowhere")
    (save / "loop").symlink_to(save)
    os.mkfifo(save / "pipe")  # opening it would block
    calls: List[Tuple[str, str]] = []
    fsync, write = os.fsync, os.write
    name = lambda fd: os.path.relpath(os.readlink(f"/proc/self/fd/{fd}"), tmp_path)
    monkeypatch.setattr(os, "fsync", lambda fd: (calls.append(("sync", name(fd))), fsync(fd))[1])
    monkeypatch.setattr(os, "write", lambda fd, data: (calls.append(("write", name(fd))), write(fd, data))[1])
    monkeypatch.chdir(tmp_path)
    curfew.save_done("ckpt/12", 12)

    written = calls.index(("write", "run/events.jsonl"))
    before = [what for call, what in calls[:written] if call == "sync"]
    assert sorted(before) == sorted(
        f"ckpt{what}" for what in ("", "/12", "/12/a", "/12/deep", "/12/deep/c", "/12/deep/er", "/12/deep/er/b")
    )
    for inner in before:  # a folder after what is in it
        assert all(before.index(inner) <= before.index(outer) for outer in before if inner.startswith(outer + "/"))
    assert calls[written + 1 :] == [("sync", "run/events.jsonl"), ("sync", "run")]
    (line,) = folder.events()
    assert (line["event"], line["path"], line["step"]) == ("saved", str(save), 12)


def test_a_save_without_a_step_and_of_one_file(folder: Folder, tmp_path: Path) -> None:
    (tmp_path / "weights.pt").write_text("x")
    curfew.save_done(tmp_path / "weights.pt")
    (line,) = folder.events()
    assert sorted(line) == ["at", "event", "path"]


def test_steps_stand_before_the_save_that_follows_them(folder: Folder, tmp_path: Path) -> None:
    curfew.step(1)
    curfew.step(2)  # waits for its second
    curfew.save_done(tmp_path, 2)
    assert [(line["event"], line["step"]) for line in folder.events()] == [("step", 1), ("step", 2), ("saved", 2)]


def test_what_is_not_there_is_no_save(folder: Folder, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        curfew.save_done(tmp_path / "missing", 3)
    assert folder.events() == []


@pytest.mark.parametrize(
    ("environment", "rank"),
    [
        ({}, None),
        ({"RANK": "0"}, 0),
        ({"RANK": "3"}, 3),
        ({"OMPI_COMM_WORLD_RANK": "2"}, 2),
        ({"SLURM_PROCID": "1"}, 1),
        ({"RANK": "0", "SLURM_PROCID": "5"}, 0),
        ({"RANK": "", "SLURM_PROCID": "5"}, 5),
        ({"RANK": "first"}, None),
    ],
)
def test_ranks(folder: Folder, monkeypatch: pytest.MonkeyPatch, environment: Any, rank: Optional[int]) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    curfew.step(1)
    assert folder.steps() == ([] if rank else [1])
    curfew.save_done(folder.path, 1)
    assert [line.get("rank") for line in folder.events()] == ([rank] if rank else [rank, rank])
    curfew.step(2, every_rank=True)
    _run._at_exit()
    assert folder.steps()[-1] == 2


def test_the_rank_of_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    class Distributed:
        on = False

        def is_initialized(self) -> bool:
            return self.on

    class Jax:
        distributed = Distributed()

        def process_index(self) -> int:
            assert self.distributed.on, "it would start the backend too early"
            return 4

    monkeypatch.setitem(sys.modules, "jax", Jax())  # type: ignore[arg-type]
    assert _run.rank() is None
    Jax.distributed.on = True
    assert _run.rank() == 4
    monkeypatch.setenv("RANK", "6")
    assert _run.rank() == 6


def test_the_stop_file(folder: Folder, quick: float) -> None:
    assert not curfew.should_stop()
    (folder.path / "stop").write_text('{"reason":"spot notice","by":"2026-11-22T18:00:00Z"}')
    wait_for(curfew.should_stop)
    assert curfew.stop_request() == curfew.StopRequest("spot notice", datetime(2026, 11, 22, 18, tzinfo=timezone.utc))
    (folder.path / "stop").unlink()
    time.sleep(2 * quick)
    assert curfew.should_stop()


@pytest.mark.parametrize(
    ("text", "reason", "by"),
    [
        ('{"reason":"a","by":"2026-11-22T18:00:00+02:00"}', "a", datetime(2026, 11, 22, 16, tzinfo=timezone.utc)),
        ('{"by":"2026-11-22T18:00:00.123456789Z"}', "", datetime(2026, 11, 22, 18, 0, 0, 123456, timezone.utc)),
        ('{"by":"2026-11-22T18:00:00.5-01:00"}', "", datetime(2026, 11, 22, 19, 0, 0, 500000, timezone.utc)),
        ('{"reason":"no zone","by":"2026-11-22T18:00:00"}', "no zone", None),
        ('{"by":12}', "", None),
        ('{"by":"soon"}', "", None),
        ("", "", None),
        ("{", "", None),
        ("[]", "", None),
        ("\x00\xff", "", None),
    ],
)
def test_whatever_it_says_a_stop_file_stops(folder: Folder, text: str, reason: str, by: Optional[datetime]) -> None:
    (folder.path / "stop").write_bytes(text.encode("latin-1"))
    assert curfew.stop_request() == curfew.StopRequest(reason, by)


def test_the_stop_file_is_looked_for_once_per_second(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: List[str] = []
    stat = os.stat
    monkeypatch.setattr(os, "stat", lambda path, **more: (looks.append(str(path)), stat(path, **more))[1])
    for _ in range(10000):
        assert not curfew.should_stop()
    assert looks == [str(folder.path / "stop")]


def test_a_fork_writes_only_what_it_says_itself(folder: Folder, script: Script) -> None:
    text = """
        import os, threading, warnings, curfew
        warnings.simplefilter("ignore")
        curfew.step(1)
        curfew.step(2)  # a timer waits for its second
        if os.fork() == 0:
            curfew.step(100)
            raise SystemExit
        os.wait()
    """
    process = script(text)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (0, "")
    assert folder.steps() == [1, 100, 2]


def test_the_package_needs_nothing(folder: Folder) -> None:
    allowed = set(sys.stdlib_module_names) if sys.version_info >= (3, 10) else None
    if allowed is None:
        pytest.skip("Python 3.9 does not list its modules")
    text = "import sys, curfew; print(*{name.partition('.')[0] for name in sys.modules})"
    loaded = subprocess.run([sys.executable, "-I", "-S", "-c", f"import sys; sys.path.append({str(Path(curfew.__file__).parent.parent)!r}); {text}"], capture_output=True, text=True, check=True)
    assert {name for name in loaded.stdout.split() if not name.startswith("__")} - allowed == {"curfew"}
