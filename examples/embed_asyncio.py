"""A client without a thread of its own (client.thread=none) in an asyncio loop, beside whatever else the loop serves (here: a timer of the application's
own). What the loop does for the client stands in kclient/aio/_loop.py: it waits on kc_client_fd, and wakes for kc_client_next_deadline_us.

Sends COUNT records, as many at once as the queue has room for, and reads them back as a member of a group.
Usage: embed_asyncio.py HOST:PORT TOPIC COUNT, of a topic that exists.
"""

import asyncio
import sys

from kclient.aio import Client, Consumer, Producer

OWN_TIMER_S = 0.005


async def own_timer(ticks: "list[float]") -> None:
    """The application's own work goes on while the client's is done."""
    while True:
        await asyncio.sleep(OWN_TIMER_S)
        ticks.append(asyncio.get_running_loop().time())


async def send(producer: Producer, topic: str, count: int) -> None:
    async def one(number: int) -> int:
        report = await producer.send(topic, f"record {number}")  # waits for room where the queue is full
        return report.offset

    await asyncio.gather(*(one(number) for number in range(count)))
    print(f"sent {count}")


async def read(consumer: Consumer, count: int) -> None:
    got = 0
    while got < count:
        batch = await consumer.poll_batch()
        got += len(batch) if batch is not None else 0
    await consumer.commit()
    print(f"read {got}")


async def main(bootstrap: str, topic: str, count: int) -> None:
    ticks: "list[float]" = []
    timer = asyncio.ensure_future(own_timer(ticks))
    group = dict(group_id=f"embed-{topic}", topics=[topic], auto_offset_reset="earliest")
    async with Client(bootstrap_servers=bootstrap, client_thread="none", queue_buffering_max_messages=1000) as client:
        async with Producer(client) as producer, Consumer(client, **group) as consumer:
            await asyncio.gather(send(producer, topic, count), read(consumer, count))
    timer.cancel()
    print(f"the application's own timer ran {'as well' if ticks else 'never'}")


if __name__ == "__main__":
    if len(sys.argv) != 4 or not sys.argv[3].isdigit():
        sys.exit(f"usage: {sys.argv[0]} HOST:PORT TOPIC COUNT")
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
