"""Commands that die at a chosen moment: a process that has imported everything, and forks for each command."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

_SERVER = """
import contextlib, gc, importlib, json, os, pkgutil, signal, sys
gc.disable()
import matplotlib.pyplot, optuna, pytest
import tsforecast
from experiments.policies.train import main as policy
from tests.pictures import draw_once
from tsforecast.cli import main

for module in pkgutil.walk_packages(tsforecast.__path__, "tsforecast."):  # what each command would import anew
    with contextlib.suppress(ImportError):  # of what an extra brings
        importlib.import_module(module.name)
draw_once(pytest.MonkeyPatch())
gc.freeze()
gc.enable()

CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.symlink", "os.link")

def child(order):
    log = os.open(order["log"], os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(log, stream)
    seen = []

    def count(event, arguments):
        if event == "open":
            if not isinstance(arguments[2], int) or not arguments[2] & (os.O_WRONLY | os.O_RDWR):
                return
        elif event not in CHANGES:
            return
        path = os.fspath(arguments[0]) if not isinstance(arguments[0], int) else ""
        if isinstance(path, bytes) or os.path.isabs(path) and not path.startswith(order["folder"]):
            return
        target = os.fspath(arguments[1]) if event == "os.rename" else path
        if os.path.basename(target) not in order["names"] and order["names"]:
            return
        seen.append(f"{event} {target}")
        if len(seen) == order["moment"]:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)
    try:
        name, *rest = order["argv"]
        status = policy(rest) if name == "policy" else main(order["argv"])
    except SystemExit as end:
        status = end.code
    os.write(reply, json.dumps(seen).encode())
    os._exit(status)

for line in sys.stdin:
    hear, reply = os.pipe()
    process = os.fork()
    if not process:
        child(json.loads(line))
    os.close(reply)
    with os.fdopen(hear) as said:
        seen = said.read()
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    print(json.dumps({"status": status, "changes": json.loads(seen or "[]")}), flush=True)
"""


@dataclasses.dataclass(frozen=True)
class Ended:
    """How a command ended: exit status, changes of files that it made (none if it was killed), and what it said."""

    status: int
    changes: list[str]
    said: str


class Commands:
    """Runs commands, each in a process of its own that may be killed just before it changes a file."""

    def __init__(self, log: Path) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "MPLBACKEND": "agg"}
        environment["PYTHONDONTWRITEBYTECODE"] = "1"  # the first command would change more files than the others
        self.log = log
        self.server = subprocess.Popen(
            [sys.executable, "-c", _SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def run(self, *argv: object, folder: Path, moment: int = 0, names: tuple[str, ...] = ()) -> Ended:
        """Runs a command.

        Args:
            argv: Its name and arguments.
            folder: Below which changes of files are counted.
            moment: Number of the change at which the process is killed, from 1 on; 0 for never.
            names: Files that count; all by default.
        """
        order = {"argv": [str(a) for a in argv], "folder": str(folder), "moment": moment, "names": names}
        assert self.server.stdin is not None
        assert self.server.stdout is not None
        self.server.stdin.write(json.dumps({**order, "log": str(self.log)}) + "\n")
        self.server.stdin.flush()
        return Ended(**json.loads(self.server.stdout.readline()), said=self.log.read_text())

    def close(self) -> None:
        """Ends the process."""
        self.server.communicate()
