from __future__ import annotations

import ctypes
import logging
import os
import signal
import threading
from pathlib import Path
from typing import Any, List

import pytest

import curfew

from conftest import Folder, Script


def kill() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def test_it_saves_and_then_ends_as_the_signal_would(folder: Folder) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    done: List[str] = []
    with pytest.raises(SystemExit) as end:
        with curfew.save_on_sigterm(lambda: done.append("saved")) as sigterm:
            assert (sigterm.armed, sigterm.why_not) == (True, "")
            kill()
            kill()  # launchers pass on what the process group got as well
            assert curfew.should_stop()
            assert curfew.stop_request() == curfew.StopRequest("SIGTERM", None)
            done.append("left the loop")
    assert end.value.code == 143
    assert done == ["left the loop", "saved"]
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_without_a_signal_nothing_is_saved(folder: Folder) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with curfew.save_on_sigterm(lambda: pytest.fail("saved")):
        assert not curfew.should_stop()
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_the_stop_file_saves_too_and_goes_on(folder: Folder) -> None:
    done: List[str] = []
    folder.stop()
    with curfew.save_on_sigterm(lambda: done.append("saved")):
        assert curfew.should_stop()
    assert done == ["saved"]


def test_where_sigterm_was_ignored_the_process_goes_on(folder: Folder) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    done: List[str] = []
    with curfew.save_on_sigterm(lambda: done.append("saved")):
        kill()
        assert curfew.should_stop()
    assert done == ["saved"]
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN


def test_the_handler_before_is_called_at_once_and_put_back(folder: Folder) -> None:
    done: List[str] = []

    def mine(number: int, frame: Any) -> None:
        done.append(f"handler {number} {frame is not None}")

    signal.signal(signal.SIGTERM, mine)
    with curfew.save_on_sigterm(lambda: done.append("saved")):
        kill()
        done.append("left the loop")
    assert done == ["handler 15 True", "left the loop", "saved"]
    assert signal.getsignal(signal.SIGTERM) == mine


def test_a_handler_that_ends_the_process_waits_for_the_save(folder: Folder) -> None:
    done: List[str] = []

    def leave(number: int, frame: Any) -> None:
        raise SystemExit(3)

    signal.signal(signal.SIGTERM, leave)
    with pytest.raises(SystemExit) as end:
        with curfew.save_on_sigterm(lambda: done.append("saved")):
            kill()
            done.append("left the loop")
    assert end.value.code == 3
    assert done == ["left the loop", "saved"]


def test_a_library_inside_of_a_program(folder: Folder) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    done: List[str] = []
    with pytest.raises(SystemExit):
        with curfew.save_on_sigterm(lambda: done.append("program")):
            outer = signal.getsignal(signal.SIGTERM)
            with curfew.save_on_sigterm(lambda: done.append("library")):
                kill()
            done.append("after the library")
            assert signal.getsignal(signal.SIGTERM) == outer
    assert done == ["library", "after the library", "program"]


def test_a_handler_set_on_top_stays(folder: Folder) -> None:
    done: List[str] = []
    signal.signal(signal.SIGTERM, lambda *_: done.append("first"))
    with curfew.save_on_sigterm():
        below: Any = signal.getsignal(signal.SIGTERM)

        def on_top(number: int, frame: Any) -> None:
            done.append("on top")
            below(number, frame)

        signal.signal(signal.SIGTERM, on_top)
    assert signal.getsignal(signal.SIGTERM) == on_top
    kill()
    assert done == ["on top", "first"]
    assert not curfew.should_stop()  # the block is over


def test_a_handler_on_top_of_none_still_ends_the_process(folder: Folder) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with curfew.save_on_sigterm():
        below: Any = signal.getsignal(signal.SIGTERM)
        signal.signal(signal.SIGTERM, lambda number, frame: below(number, frame))
    with pytest.raises(SystemExit):
        kill()


def test_a_failure_after_the_signal_is_not_saved_and_ends(folder: Folder, caplog: pytest.LogCaptureFixture) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with pytest.raises(SystemExit) as end:
        with curfew.save_on_sigterm(lambda: pytest.fail("half a step was saved")):
            kill()
            raise ZeroDivisionError("in the step")
    assert end.value.code == 143
    assert "in the step" in caplog.text
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


@pytest.mark.parametrize(("code", "want"), [(None, 143), (0, 143), (3, 3)])
def test_an_exit_after_the_signal_is_no_success(folder: Folder, code: Any, want: int) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with pytest.raises(SystemExit) as end:
        with curfew.save_on_sigterm():
            kill()
            raise SystemExit(code)
    assert end.value.code == want


def test_a_failure_alone_is_the_script_s(folder: Folder) -> None:
    with pytest.raises(ZeroDivisionError):
        with curfew.save_on_sigterm(lambda: pytest.fail("saved")):
            raise ZeroDivisionError


def test_a_save_that_fails_puts_the_handler_back(folder: Folder) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with pytest.raises(ZeroDivisionError):
        with curfew.save_on_sigterm(lambda: 1 / 0):
            kill()
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


@pytest.mark.parametrize("before", ["none", "handler", "outer block"])
def test_a_worker_ends_as_if_nothing_were_set(folder: Folder, script: Script, before: str) -> None:
    process = script(
        """
        import contextlib, multiprocessing, signal, sys, time, curfew
        before = sys.argv[1]
        if before == "handler":
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
        fork = multiprocessing.get_context("fork")
        with curfew.save_on_sigterm() if before == "outer block" else contextlib.nullcontext():
            with curfew.save_on_sigterm():
                ready = fork.Event()
                worker = fork.Process(target=lambda: (ready.set(), time.sleep(60)))
                worker.start()
                ready.wait()
                worker.terminate()
                worker.join(30)
                print(worker.exitcode, curfew.should_stop())
        """,
        before,
    )
    out, err = process.communicate(timeout=60)
    assert (out, err) == (f"{7 if before == 'handler' else -15} False\n", "")


def test_off_the_main_thread_it_says_so(folder: Folder, caplog: pytest.LogCaptureFixture) -> None:
    before = signal.getsignal(signal.SIGTERM)
    seen: List[Any] = []

    def train() -> None:
        with curfew.save_on_sigterm(lambda: seen.append("saved")) as sigterm:
            seen.extend([sigterm.armed, "main thread" in sigterm.why_not])
            folder.stop()
            seen.append(curfew.should_stop())

    with caplog.at_level(logging.WARNING, "curfew"):
        thread = threading.Thread(target=train)
        thread.start()
        thread.join()
    assert seen == [False, True, True, "saved"]
    assert "main thread" in caplog.text
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.parametrize("below", [signal.SIG_DFL, lambda *_: None], ids=["none", "a handler in Python"])
@pytest.mark.parametrize("interrupt", [signal.default_int_handler, signal.SIG_IGN], ids=["in front", "in the background of a script"])
def test_a_handler_outside_of_python_is_kept(folder: Folder, below: Any, interrupt: Any) -> None:
    before = signal.signal(signal.SIGINT, interrupt)
    signal.signal(signal.SIGTERM, below)
    if below != signal.SIG_DFL:
        with curfew.save_on_sigterm() as sigterm:
            assert (sigterm.armed, sigterm.why_not) == (True, "")
    got: List[int] = []
    kind = ctypes.CFUNCTYPE(None, ctypes.c_int)
    native = kind(got.append)
    libc = ctypes.CDLL(None)
    libc.signal.argtypes, libc.signal.restype = [ctypes.c_int, kind], ctypes.c_void_p
    libc.signal(signal.SIGTERM, native)
    try:
        with curfew.save_on_sigterm() as sigterm:
            assert (sigterm.armed, sigterm.why_not) == (False, "code outside of Python handles SIGTERM")
            kill()
        kill()
        assert got == [15, 15]
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, before)
    assert signal.getsignal(signal.SIGURG) == signal.SIG_DFL


def test_a_script_that_is_ended_from_outside(folder: Folder, script: Script, tmp_path: Path) -> None:
    process = script(
        """
        import time, curfew
        n = 0
        def save():
            open("save", "w").write(str(n))
            curfew.save_done("save", n)
        with curfew.save_on_sigterm(save):
            while not curfew.should_stop():
                n += 1
                curfew.step(n)
                if n == 10:
                    print("runs", flush=True)
                time.sleep(0.001)
        print("after the end")
        """
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "runs\n"
    process.terminate()
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out, err) == (143, "", "")
    last, saved = folder.events()[-2:]
    assert (last["event"], saved["event"], saved["path"]) == ("step", "saved", str(tmp_path / "save"))
    assert last["step"] == saved["step"] == int((tmp_path / "save").read_text())
