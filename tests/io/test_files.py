"""Files are old or new and never half of one; folders belong to one living process."""

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from experiments.tables import append_rows
from tsforecast.io import files, locks
from tsforecast.io.files import remove_leftovers, replace_file, replace_folder
from tsforecast.io.locks import lock_folder
from tsforecast.io.tensors import save_tensors


def start(work):
    """Starts a process that works until it is killed; its id and what it said when it was ready."""
    hear, say = os.pipe()
    process = os.fork()
    if not process:
        try:
            work(lambda text="": os.write(say, f"ready {text}".encode()))
        finally:
            os._exit(1)
    os.close(say)
    said = os.read(hear, 1000).decode()
    os.close(hear)
    return process, said


def kill(process):
    os.kill(process, signal.SIGKILL)
    assert died(process)


def died(process):
    return os.WTERMSIG(os.waitpid(process, 0)[1]) == signal.SIGKILL


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path):
    path = tmp_path / "scores.json"
    with replace_file(path) as temporary:
        temporary.write_text("old")
        assert not path.exists()
        assert (temporary.parent, temporary.suffix) == (path.parent, ".json")

    def interrupted():
        with replace_file(path) as temporary:
            temporary.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_text() == "old"
    assert names(tmp_path) == ["scores.json"]


def test_it_is_on_the_disk_before_it_takes_its_place(tmp_path, monkeypatch):
    path, events = tmp_path / "a.txt", []
    flush, replace = os.fsync, Path.replace

    def fsync(handle):
        events.append("folder" if os.path.samestat(os.fstat(handle), tmp_path.stat()) else os.fstat(handle).st_size)
        flush(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", lambda self, to: events.append("renamed") or replace(self, to))
    with replace_file(path) as temporary:
        temporary.write_text("12345")
    assert events == [5, "renamed", "folder"]


def test_permissions_are_those_of_a_new_file(tmp_path):
    (tmp_path / "plain").write_text("")
    with replace_file(tmp_path / "new"):
        pass
    assert (tmp_path / "new").stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.parametrize("link", [False, True])
def test_what_lies_in_the_place_of_the_temporary_file_is_left_alone(tmp_path, monkeypatch, link):
    """Even if somebody had guessed its name: it is neither appended to nor followed."""
    monkeypatch.setattr(files.secrets, "token_hex", lambda count: "0" * 2 * count)
    path, other = tmp_path / "table.csv", tmp_path / "other"
    other.write_text("precious")
    stale = files._beside(path)
    stale.symlink_to(other) if link else stale.write_text("stale rows")
    with pytest.raises(FileExistsError), replace_file(path) as temporary, temporary.open("a") as stream:
        stream.write("new rows")
    assert stale.read_text() == ("precious" if link else "stale rows")
    assert not path.exists()


def test_two_files_of_a_process_do_not_meet(tmp_path):
    with replace_file(tmp_path / "a.csv") as one, replace_file(tmp_path / "a.csv") as two:
        assert one != two
        one.write_text("one")
        two.write_text("two")
    assert (tmp_path / "a.csv").read_text() == "one"  # whoever ends last
    long = tmp_path / ("é" * 100 + ".csv")
    with replace_file(long):
        pass
    assert long.exists()


def test_leftovers_of_the_dead_are_removed_and_those_of_the_living_are_not(tmp_path):

    def work(ready):
        with replace_file(tmp_path / "table.csv.gz") as file, replace_folder(tmp_path / "predictor") as scratch:
            file.write_text("half")
            (scratch / "weights").write_text("half")
            ready()
            time.sleep(60)

    process, _ = start(work)
    (tmp_path / ".hidden").write_text("a user's")
    (tmp_path / ".data.part-1.csv").write_text("a user's")
    assert len(names(tmp_path)) == 4
    remove_leftovers(tmp_path)
    assert len(names(tmp_path)) == 4
    kill(process)
    remove_leftovers(tmp_path)
    assert names(tmp_path) == [".data.part-1.csv", ".hidden"]
    remove_leftovers(tmp_path / "nowhere")


def test_a_folder_is_replaced_whole_or_not_at_all(tmp_path):
    path = tmp_path / "predictor"
    for text in ("old", "new"):
        with replace_folder(path) as scratch:
            (scratch / "sub").mkdir()
            (scratch / "sub" / text).write_text(text)
    assert names(path / "sub") == ["new"]

    def interrupted():
        with replace_folder(path) as scratch:
            (scratch / "half").write_text("half")
            raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        interrupted()
    assert names(path / "sub") == ["new"]
    assert names(tmp_path) == ["predictor"]


@pytest.mark.parametrize(("renames", "expected"), [(0, "old"), (1, "old"), (2, "new")])
def test_a_folder_survives_a_kill_at_any_step_of_its_replacement(tmp_path, renames, expected):
    with replace_folder(tmp_path / "predictor") as scratch:
        (scratch / "text").write_text("old")

    def work(ready):
        rename, count = Path.rename, 0

        def counted(self, to):
            nonlocal count
            if count == renames:
                os.kill(os.getpid(), signal.SIGKILL)
            count += 1
            return rename(self, to)

        Path.rename = counted
        files.shutil.rmtree = lambda *arguments, **options: os.kill(os.getpid(), signal.SIGKILL)
        with replace_folder(tmp_path / "predictor") as scratch:
            (scratch / "text").write_text("new")

    assert died(start(work)[0])
    remove_leftovers(tmp_path)
    assert names(tmp_path) == ["predictor"]
    assert (tmp_path / "predictor" / "text").read_text() == expected


def test_a_full_disk_says_which_file_and_leaves_the_old_one(tmp_path):
    path = tmp_path / "state.pt"
    save_tensors({"x": torch.zeros(10)}, path)
    before = path.read_bytes()

    def work(ready):
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
        try:
            save_tensors({"x": torch.zeros(10_000)}, path)
        except OSError as error:
            ready(str(error))
            time.sleep(60)

    process, said = start(work)
    kill(process)
    assert said == f"ready [Errno 27] File too large: {str(path)!r}"
    assert path.read_bytes() == before
    assert names(tmp_path) == ["state.pt"]


def test_rows_are_added_all_or_none(tmp_path):
    path = tmp_path / "results" / "table.csv"
    append_rows(path, ["a", "b"], [{"a": 1, "b": "x,y"}, {"a": 2}])
    append_rows(path, ["a", "b"], [{"b": 3}])
    whole = 'a,b\n1,"x,y"\n2,\n,3\n'
    assert path.read_text() == whole
    with pytest.raises(ValueError, match="fields not in fieldnames"):
        append_rows(path, ["a", "b"], [{"a": 4}, {"c": 5}])
    assert path.read_text() == whole


def test_processes_that_add_rows_wait_for_each_other(tmp_path):
    path = tmp_path / "table.csv"

    def work(ready):
        with files.append_file(path) as file:
            ready()
            time.sleep(0.5)  # the other one would write a header of its own
            file.write("a\nfirst\n")
        os.kill(os.getpid(), signal.SIGKILL)

    process, _ = start(work)
    append_rows(path, ["a"], [{"a": "second"}])
    assert died(process)
    assert path.read_text() == "a\nfirst\nsecond\n"


def test_one_process_holds_a_folder(tmp_path):
    folder = tmp_path / "new" / "run"

    def work(ready):
        with lock_folder(folder):
            ready()
            time.sleep(60)

    process, _ = start(work)
    message = rf"run is in use by process {process} on .*: wait until it has ended"
    with pytest.raises(ValueError, match=message), lock_folder(folder):
        raise AssertionError("both hold it")
    kill(process)
    assert names(folder) == [".lock"]
    with lock_folder(folder):  # a dead owner does not hold it
        assert names(folder) == [".lock"]
    assert names(folder) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="file is a file; expected a folder"), lock_folder(tmp_path / "file"):
        raise AssertionError("a file was locked")


def test_a_worker_does_not_hold_the_folder_of_its_dead_parent(tmp_path):

    def work(ready):
        with lock_folder(tmp_path):
            worker = os.fork()
            if worker:
                ready(worker)
            time.sleep(60)

    process, said = start(work)
    worker = int(said.split()[1])
    try:
        kill(process)
        with lock_folder(tmp_path):
            assert names(tmp_path) == [".lock"]
    finally:
        os.kill(worker, signal.SIGKILL)


def test_a_folder_that_stays_empty_is_removed(tmp_path):
    with lock_folder(tmp_path / "run"):
        pass
    assert names(tmp_path) == []
    with lock_folder(tmp_path / "run"):
        (tmp_path / "run" / "a").write_text("")
    assert names(tmp_path / "run") == ["a"]


def test_the_lock_of_a_new_file_is_taken_when_its_owner_removed_the_old_one(tmp_path, monkeypatch):
    """Who opened the file just before its owner removed it holds a file that nobody sees."""
    real, opened = locks.lock_open_file, []

    def late(handle):
        if not opened:
            (tmp_path / ".lock").unlink()
        opened.append(handle)
        return real(handle)

    monkeypatch.setattr(locks, "lock_open_file", late)
    with lock_folder(tmp_path):
        assert len(opened) == 2
        assert (tmp_path / ".lock").is_file()


def test_files_are_read_and_written_without_torch():
    modules = "tsforecast.io.files, tsforecast.io.frame_files, tsforecast.io.binary, tsforecast.data.tables.formats"
    code = f"import sys, {modules}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
