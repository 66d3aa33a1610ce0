"""`tsforecast live init` and `tsforecast live serve`: beliefs of a trained model that a service keeps current."""

import gc
import logging
import socket
import sys
from functools import partial
from pathlib import Path

import torch

from tsforecast.cli import bulk_options, options, parsing, runs
from tsforecast.cli.commands import LiveInit, LiveServe
from tsforecast.cli.opened import Opened
from tsforecast.data.buckets.rows import refuse_other_frequency
from tsforecast.data.buckets.survey import read_survey
from tsforecast.data.sources import bucket_task
from tsforecast.io.files import checksum, folder_checksum
from tsforecast.live.beginning import Source, begin_store
from tsforecast.live.guard import LOOPBACK, Guard, Limits, read_token
from tsforecast.live.opening import open_store
from tsforecast.live.owner import Owner

log = logging.getLogger(__name__)

_SWITCH = 5e-4  # seconds after which a thread lets the other go on: the loop that answers waits for the owner less


def run(chosen: LiveInit | LiveServe) -> int:
    """Begins or serves a store."""
    if isinstance(chosen, LiveInit):
        _init(chosen)
    else:
        _serve(chosen)
    return 0


def _init(chosen: LiveInit) -> None:
    """Writes a store."""
    opened = Opened.of(chosen, chosen.run)
    series = begin_store(
        chosen.output,
        opened.folder / runs.PREDICTOR,
        _sources(opened, chosen.data),
        prediction_length=chosen.prediction_length,
        targets=opened.columns.targets,
        warm_up=chosen.warm_up,
        seed=chosen.seed,
        adaptation=options.adaptation(chosen),
        device=chosen.device,
    )
    told = chosen.output, series, parsing.typed("live"), chosen.output
    log.info("%s: beliefs of %d series; `%s serve %s` keeps them current", *told)


def _sources(opened: Opened, data: str | None) -> list[Source]:
    """The parts of the data: buckets, or one file."""
    path = Path(data or opened.trained.data or "")
    if opened.buckets is not None:
        common = bulk_options.buckets_of(opened)
        survey = read_survey(path)
        refuse_other_frequency(path, survey, common["freq"])
        del common["device"]
        read = lambda bucket: bucket_task(path, bucket, prediction_length=0, **common).entries  # noqa: E731
        return [Source(bucket.sha256, partial(read, bucket)) for bucket in survey.buckets]
    if data is None and opened.trained.dataset is not None:
        check = opened.trained.dataset
    else:
        check = checksum(path) if path.is_file() else folder_checksum(path)
    return [Source(check, lambda: opened.whole().entries)]


def _serve(chosen: LiveServe) -> None:
    """Answers requests until it is stopped."""
    try:
        import uvicorn

        from tsforecast.live.app import Sizes, make_app
        from tsforecast.live.connections import Connection
        from tsforecast.live.metrics import Metrics
        from tsforecast.live.wire import most_values
    except ImportError as error:
        raise ValueError("`live serve` needs FastAPI: `pip install 'tsforecast[serve]'`") from error
    token = None if chosen.token_file is None else read_token(chosen.token_file)
    if token is None and chosen.host not in LOOPBACK:
        raise ValueError(
            f"--host {chosen.host} can be reached from other machines; give --token_file FILE, whose token requests "
            "must bring, or leave the host out"
        )
    sys.setswitchinterval(_SWITCH)
    torch.set_num_threads(1)  # with others sums have other last digits
    config = uvicorn.Config(
        "",
        host=chosen.host,
        port=chosen.port,
        log_level="warning",
        access_log=False,
        server_header=False,
        ws="none",
        http=Connection,
        limit_concurrency=chosen.max_connections,
        timeout_keep_alive=30,
    )
    with open_store(chosen.store, max_items=chosen.max_items, max_gap=chosen.max_gap, device=chosen.device) as store:
        log.info("%s: %d series, %d micro-batches", chosen.store, len(store.rows), store.number)
        owner = Owner(store, snapshot_every=chosen.snapshot_every)
        metrics = Metrics(owner)
        most = most_values(store.engine, chosen.max_batch)
        limits = Limits(token, () if token else LOOPBACK, chosen.max_body, most, chosen.max_rate, chosen.burst)
        config.app = Guard(make_app(owner, Sizes(chosen.max_batch), metrics), limits, metrics.note)
        bound = _bound(chosen.host, chosen.port)
        bound.listen(config.backlog)  # who reads the next line may connect at once
        log.info("http://%s:%d", chosen.host, bound.getsockname()[1])
        gc.collect()
        gc.freeze()  # what is there stays: to look through it takes half a second, in which nothing is answered
        uvicorn.Server(config).run(sockets=[bound])


def _bound(host: str, port: int) -> socket.socket:
    """Return a socket at an address; a ValueError says that it cannot be had, as when another service is there."""
    bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise ValueError(f"--host {host}, --port {port}: {error.strerror}; give another --port") from error
    bound.set_inheritable(True)
    return bound
