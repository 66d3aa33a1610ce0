"""A job of a benchmark in a process of its own; this module imports nothing that takes memory."""

import json
import os
import pathlib
import subprocess
import sys
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
LIMITS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def run_worker(script: str, job: dict[str, Any], timeout_seconds: int) -> dict[str, Any]:
    """Return what a script of this folder says about a job; a crash is a result, too.

    Args:
        script: Name of the file. It takes the job as JSON, and its last line is the result as JSON.
        job: What to measure, with the number of `threads`.
        timeout_seconds: After so many the job has failed.
    """
    environment = {**os.environ, **dict.fromkeys(LIMITS, str(job["threads"]))}
    if job["threads"] == 1:
        environment["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    command = [sys.executable, "-W", "ignore", str(HERE / script), json.dumps(job)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout_seconds, env=environment, check=False
        )
    except subprocess.TimeoutExpired:
        return {"status": "failed", "remark": f"not finished after {timeout_seconds} s"}
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        return {"status": "failed", "remark": lines[-1][:200]}
    return json.loads(done.stdout.strip().splitlines()[-1])
