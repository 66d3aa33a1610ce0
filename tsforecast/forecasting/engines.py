"""Who computes: processes of this machine, or Ray. Jobs are paths and plain records; results come as they are done."""

import logging
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from tsforecast.processes import imported_once
from tsforecast.wording import option

Job = tuple[Any, ...]
_STORE = 100 << 20  # bytes that tasks of Ray share: jobs and notes are small
Engine = Callable[[Callable[..., Any], Sequence[Job], int, str | None], Iterator[Any]]


def local(function: Callable[..., Any], jobs: Sequence[Job], workers: int, address: str | None) -> Iterator[Any]:
    """Yields the results of jobs, as they are done by processes of this machine; by this one, if it is the only one.

    Args:
        function: Of a module, which takes a job.
        jobs: Its arguments.
        workers: Processes.
        address: None.

    Raises:
        ValueError: If there is an address; or a process was killed, as when there is not enough memory.
        Exception: Of a job; others that have not begun are left out.
    """
    if address is not None:
        raise ValueError(f"{option('address')} is that of a cluster: it goes with {option('engine', 'ray')}")
    if min(workers, len(jobs)) <= 1:
        yield from (function(*job) for job in jobs)
        return
    processes = imported_once(function.__module__)
    with ProcessPoolExecutor(min(workers, len(jobs)), processes, _end_with_parent) as pool:
        waiting = [pool.submit(function, *job) for job in jobs]
        try:
            for done in as_completed(waiting):
                yield done.result()
        except BrokenProcessPool as error:
            raise ValueError(
                f"a worker was killed, perhaps for want of memory: give fewer {option('workers')}; the same call goes "
                "on where it stopped"
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)


def _end_with_parent() -> None:
    """Lets a worker end when the process that sends it jobs is killed: it would wait for more for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def ray(function: Callable[..., Any], jobs: Sequence[Job], workers: int, address: str | None) -> Iterator[Any]:
    """Yields the results of jobs, as they are done by tasks of Ray, of a CPU each.

    Args:
        function: Of a module, which takes a job.
        jobs: Its arguments: paths, which all machines of the cluster see, and plain records.
        workers: Tasks at a time.
        address: Of a cluster; None for one on this machine, of as many CPUs as workers, which ends with the last job.

    Raises:
        ValueError: If Ray is not installed, there is no such cluster, or a worker was killed again and again.
        Exception: Of a job; others are cancelled.
    """
    try:
        import ray as cluster  # pyright: ignore[reportMissingImports]
        from ray import exceptions  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ValueError(f"{option('engine', 'ray')} needs Ray: `pip install 'tsforecast[ray]'`") from error
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent to anybody
    begun = not cluster.is_initialized()
    where: dict[str, Any] = {"address": address}
    if address is None:
        os.environ.setdefault("RAY_worker_niceness", "0")  # 15 by default: any other work of the machine comes first
        where = {"address": "local", "num_cpus": workers, "include_dashboard": False, "object_store_memory": _STORE}
    try:
        if begun:
            cluster.init(log_to_driver=False, logging_level=logging.ERROR, **where)
        task = cluster.remote(num_cpus=1)(function)
        left, running = list(reversed(jobs)), []
        while left or running:
            while left and len(running) < workers:
                running.append(task.remote(*left.pop()))
            done, running = cluster.wait(running)
            yield from cluster.get(done)
    except exceptions.RayTaskError as error:
        raise error.cause from error
    except (exceptions.RayError, ConnectionError) as error:
        raise ValueError(
            f"Ray: {' '.join(str(error).split())[:300]}; the same call goes on where it stopped"
        ) from error
    finally:
        if begun:
            cluster.shutdown()


ENGINES: dict[str, Engine] = {"local": local, "ray": ray}
