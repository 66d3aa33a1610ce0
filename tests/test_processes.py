import os
from concurrent.futures import ProcessPoolExecutor

from tsforecast.processes import imported_once


def test_processes_of_all_pools_fork_from_one_server():
    """Which has imported for them: this process would have to spawn, and each would import again."""
    parents = []
    for _ in range(2):
        with ProcessPoolExecutor(1, imported_once("json")) as pool:
            parents.append(pool.submit(os.getppid).result())
    assert parents[0] == parents[1] != os.getpid()
