"""A Dask scheduler and one worker in this process, on loopback, under TLS.

The worker is the host's own: it carries the supervisor, no tasks. Neither opens a web
server, so that nothing of a session answers without its certificates.
"""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask
from distributed import Scheduler, Security, Worker

LOOPBACK = "127.0.0.1"


class _QuietScheduler(Scheduler):
    """A scheduler without a web server."""

    def start_http_server(self, *args: Any, **kwargs: Any) -> None:
        """Open nothing."""


class _QuietWorker(Worker):
    """A worker without a web server."""

    def start_http_server(self, *args: Any, **kwargs: Any) -> None:
        """Open nothing."""


@dataclass(frozen=True, kw_only=True)
class LocalCluster:
    """A running scheduler and its worker."""

    scheduler: Scheduler
    worker: Worker
    security: Security

    async def close(self) -> None:
        """End both."""
        await self.worker.close(timeout=1, nanny=False, reason="session closed")
        await self.scheduler.close(reason="session closed")


async def start_local(directory: Path, *, host: str = LOOPBACK) -> LocalCluster:
    """Start a scheduler and a worker with certificates of their own.

    Args:
        directory: For the worker's files.
        host: The address to listen on.
    """
    logging.getLogger("distributed").setLevel(logging.WARNING)
    dask.config.set({"distributed.worker.memory.terminate": False})
    security = Security.temporary()
    scheduler = await _QuietScheduler(
        host=host, protocol="tls", port=0, dashboard=False, security=security
    )
    worker = await _QuietWorker(
        scheduler.address,
        nthreads=1,
        host=host,
        security=security,
        dashboard=False,
        memory_limit=0,
        local_directory=str(directory),
    )
    return LocalCluster(scheduler=scheduler, worker=worker, security=security)
