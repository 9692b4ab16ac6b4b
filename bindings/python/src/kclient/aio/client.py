"""A client to share between the roles of one event loop."""

from __future__ import annotations

from typing import Any

from ..client import Client as SyncClient
from ._loop import driver_of


class Client(SyncClient):
    """A client of one cluster, in an event loop: producers, consumers and Admin may share it (kclient.Client).

    async with Client(bootstrap_servers="localhost:9092") as client:
        producer, consumer = Producer(client), Consumer(client, group_id="billing")

    Close its roles before it. Making one waits for nothing.
    """

    async def close(self, timeout: Any = None) -> None:  # type: ignore[override]
        """Closes the connections, without waiting until they are gone. Roles that are still open fail what they have."""
        if not self._closed:
            driver_of(self).end()
            self.drain_logs()

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(self, kind: Any, value: Any, trace: Any) -> None:
        await self.close()
