"""One persistent Dask comm to a handler of a worker."""

from typing import Any

from distributed.comm.core import connect


async def open_link(address: str, handler: str, security: Any) -> Any:
    """Return a comm that a worker's handler has taken over.

    Args:
        address: The worker's.
        handler: A name in its `handlers`; it must read from the comm until it ends.
        security: `distributed.Security` of the cluster.
    """
    arguments = security.get_connection_args("client")
    comm = await connect(address, **arguments)
    await comm.write({"op": handler, "reply": False})
    return comm
