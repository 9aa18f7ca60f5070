"""A Dask cluster for a session: one of our own, or one that is there already."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distributed import Client, Security

from workbench.cluster.link import open_link
from workbench.cluster.local import start_local
from workbench.errors import ClusterError

#: A scheduler that has not answered by then is not there.
CONNECT_TIMEOUT_S = 5.0


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A cluster whose workers carry our supervisor.

    Args:
        address: The scheduler's.
        workers: Addresses of the workers, in a fixed order.
        security: Certificates that open both.
        end: Takes down what was started here, and nothing else.
    """

    address: str
    workers: tuple[str, ...]
    security: Security
    end: Callable[[], Awaitable[None]]

    async def open_link(self, worker: str, handler: str) -> Any:
        """Return a comm to a handler of a worker."""
        return await open_link(worker, handler, self.security)

    async def close(self) -> None:
        """End our part of it."""
        await self.end()


async def open_cluster(
    *, address: str, security: dict[str, Any], directory: Path, plugin: Any
) -> Cluster:
    """Return a cluster whose workers carry the plugin.

    Args:
        address: A running scheduler's; "" starts one here, with one worker.
        security: Arguments of `distributed.Security`, for a running one.
        directory: For files of a worker that is started here.
        plugin: A worker plugin.

    Raises:
        ClusterError: Nobody answers at the address, or it has no workers.
    """
    if not address:
        return await _own(directory, plugin)
    return await _existing(address, Security(**security), plugin)


async def _own(directory: Path, plugin: Any) -> Cluster:
    local = await start_local(directory)
    await local.worker.plugin_add(plugin=plugin, name=plugin.name)
    return Cluster(
        address=local.scheduler.address,
        workers=(local.worker.address,),
        security=local.security,
        end=local.close,
    )


async def _existing(address: str, security: Security, plugin: Any) -> Cluster:
    try:
        client = await Client(
            address,
            security=security,
            asynchronous=True,
            timeout=CONNECT_TIMEOUT_S,
            set_as_default=False,
        )
    except (OSError, TimeoutError, TypeError, ValueError) as error:
        raise ClusterError(
            f"no Dask scheduler answers at {address} within {CONNECT_TIMEOUT_S:.0f} s",
            hint="check the address, the certificates, and that the scheduler runs",
        ) from error
    return await _with_plugin(client, address, security, plugin)


async def _with_plugin(
    client: Client, address: str, security: Security, plugin: Any
) -> Cluster:
    async def end() -> None:
        await client.unregister_worker_plugin(plugin.name)
        await client.close()

    if not await _workers(client):
        await client.close()
        raise ClusterError(
            f"the scheduler at {address} has no workers",
            hint="start some: dask worker <address>, or cluster.scale(2)",
        )
    await asyncio.wait_for(client.register_plugin(plugin, name=plugin.name), 30)
    workers = await _workers(client)
    addresses = tuple(sorted(workers, key=lambda each: str(workers[each].get("name"))))
    return Cluster(address=address, workers=addresses, security=security, end=end)


async def _workers(client: Client) -> dict[str, Any]:
    """Return what the scheduler knows of its workers now, by address."""
    assert client.scheduler is not None
    identity: dict[str, Any] = await client.scheduler.identity(n_workers=-1)
    return dict(identity["workers"])
