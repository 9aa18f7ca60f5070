"""Runs a function on a few real ranks of this machine, for tests.

Ranks are forked from the calling process, so that torch is imported once.
"""

import multiprocessing
import socket
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import TCPStore

from workbench.collectives import RankGroup
from workbench.telemetry import Event


@dataclass(frozen=True, kw_only=True)
class Place:
    """What a function on a test rank gets.

    Args:
        rank: This rank.
        group: The formed group.
        events: What the rank has recorded so far.
    """

    rank: int
    group: RankGroup
    events: list[Event]


def loopback_store(listener: socket.socket | None = None) -> TCPStore:
    """Make a rendezvous store that listens on loopback only, as sessions do."""
    listener = listener or socket.create_server(("127.0.0.1", 0))
    return TCPStore(
        "127.0.0.1",
        listener.getsockname()[1],
        is_master=True,
        wait_for_workers=False,
        master_listen_fd=listener.detach(),
    )


def run_ranks(
    function: Callable[..., Any],
    *args: Any,
    num_ranks: int = 2,
    timeout_s: float = 50.0,
) -> list[Any]:
    """Run `function(place, *args)` on every rank and return the results by rank.

    Raises:
        RuntimeError: A rank raised (its traceback is inside) or took too long; no rank
            is left behind.
    """
    # The store's thread starts after the forks: a rank forked beside a thread at work may
    # inherit a lock that nobody will open. Until then early ranks wait in the backlog.
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    context = multiprocessing.get_context("fork")
    processes, pipes = [], []
    for rank in range(num_ranks):
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(
            target=_rank_main,
            args=(theirs, port, rank, num_ranks, function, args),
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # fork beside threads
            process.start()
        theirs.close()
        processes.append(process)
        pipes.append(ours)
    store: TCPStore | None = None
    try:
        store = loopback_store(listener)
        return _collect(pipes, time.monotonic() + timeout_s)
    finally:
        # Freed here, lest a kept traceback frees it in a later fork, where the store's
        # thread does not exist and its destructor ends the process.
        del store
        for process in processes:
            process.join(timeout=2)
            if process.is_alive():
                process.kill()
                process.join()


def _collect(pipes: list[Connection], deadline_s: float) -> list[Any]:
    """Wait for every rank's result; the first failure ends the wait."""
    results: dict[int, Any] = {}
    while len(results) < len(pipes):
        open_pipes = [pipe for rank, pipe in enumerate(pipes) if rank not in results]
        ready = wait(open_pipes, timeout=max(0.0, deadline_s - time.monotonic()))
        if not ready:
            missing = [rank for rank in range(len(pipes)) if rank not in results]
            raise RuntimeError(f"ranks {missing} gave no result in time")
        for pipe in ready:
            assert isinstance(pipe, Connection)
            rank = pipes.index(pipe)
            try:
                failure, results[rank] = pipe.recv()
            except EOFError:
                raise RuntimeError(f"rank {rank} died") from None
            if failure is not None:
                raise RuntimeError(f"rank {rank} raised:\n{failure}")
    return [results[rank] for rank in range(len(pipes))]


def _rank_main(
    pipe: Connection,
    port: int,
    rank: int,
    num_ranks: int,
    function: Callable[..., Any],
    args: tuple[Any, ...],
) -> None:
    torch.set_num_threads(1)
    events: list[Event] = []
    try:
        group = RankGroup.form(
            store_address=("127.0.0.1", port),
            rank=rank,
            world_size=num_ranks,
            backend="gloo",
            generation=0,
            interface=None,
            record=events.append,
        )
        result = function(Place(rank=rank, group=group, events=events), *args)
        if dist.is_initialized():
            # A rank that leaves early would cut a slower one short.
            dist.barrier()
            group.close()
        pipe.send((None, result))
    except BaseException:
        pipe.send((traceback.format_exc(), None))
    finally:
        pipe.close()
