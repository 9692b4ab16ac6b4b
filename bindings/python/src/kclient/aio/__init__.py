"""kclient for asyncio: the same names and arguments as kclient's, as coroutines.

    from kclient.aio import Producer, Consumer, Admin

    async with Producer(bootstrap_servers="localhost:9092") as producer:
        report = await producer.send("greetings", "hello")
    async with Consumer(bootstrap_servers="localhost:9092", group_id="billing", topics=["orders"]) as consumer:
        async for record in consumer:
            ...

The event loop waits on the client's descriptor; no call blocks, and no executor is used. Every await may be cancelled.
"""

from .admin import Admin
from .client import Client
from .consumer import Consumer
from .producer import Producer

__all__ = ["Admin", "Client", "Consumer", "Producer"]
