"""What becomes of a job of a benchmark in a process of its own."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import worker

SCRIPT = """
import json, os, sys, time
job = json.loads(sys.argv[1])
if job["what"] == "crash":
    sys.exit("no such thing")
time.sleep(60 if job["what"] == "hang" else 0)
print("said before")
print(json.dumps({"status": "ok", "threads": os.environ["OMP_NUM_THREADS"]}))
"""


def test_a_result_a_crash_and_a_hang_are_results(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)

    def run(what, seconds):
        return worker.run_worker(str(path), {"threads": 3, "what": what}, seconds)

    assert run("measure", 30) == {"status": "ok", "threads": "3"}
    assert run("crash", 30) == {"status": "failed", "remark": "no such thing"}
    assert run("hang", 1) == {"status": "failed", "remark": "not finished after 1 s"}
