"""How processes of this machine that share work begin."""

import multiprocessing
from multiprocessing.context import BaseContext


def imported_once(*modules: str) -> BaseContext:
    """Return a context whose processes fork from a server that has imported modules: spawned ones would each import.

    Not "fork": a process that has run torch's threads cannot be forked safely. The server of a process begins with its
    first pool; what a later pool names is imported by the processes of that pool. Where there are no servers, as on
    Windows, processes are spawned.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["__main__", *modules])
    return context
