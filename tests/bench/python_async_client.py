"""An asyncio client's run, measured: python_async_client.py CLIENT produce|consume HOW BOOT TOPIC COUNT; prints a JSON line.

CLIENT: kclient or aiokafka. The values (100 B) are made before the clock starts; consuming reads every value. Each is used as its documents say, with the
same settings: acks=1, no idempotence, linger 5 ms, batches of 1 MB. HOW:
  gather   a window of sends in flight, a future each, awaited by asyncio.gather
  each     the same, each future awaited
  many     kclient: send_many, whose result is a report for each record; aiokafka: send_batch of batches made by hand, one result a batch
  one      async for
  batch    poll_batch; getmany
"""
import asyncio
import json
import sys
import time

SIZE, CHUNK, WINDOW = 100, 10_000, 5_000
VALUES = [bytes([65 + i % 26]) * SIZE for i in range(CHUNK)]
BATCH_BYTES = 1_000_000


class Clock:
    def start(self):
        self.wall, self.cpu = time.perf_counter(), time.process_time()

    def stop(self, records):
        wall, cpu = time.perf_counter() - self.wall, time.process_time() - self.cpu
        print(json.dumps({"records": records, "seconds": wall, "records_per_s": records / wall, "cpu_ns_per_record": cpu / records * 1e9}))


async def settle(futures, how):
    if how == "gather":
        await asyncio.gather(*futures)
    else:
        for future in futures:
            await future


async def kclient_produce(boot, topic, how, count, clock):
    from kclient.aio import Producer
    async with Producer(bootstrap_servers=boot, acks=1, enable_idempotence=False, linger_ms=5, batch_size=BATCH_BYTES) as producer:
        await producer.send(topic, VALUES[0])  # connected
        clock.start()
        if how == "many":
            running = []
            for _ in range(0, count, CHUNK):
                running.append(asyncio.ensure_future(producer.send_many(topic, VALUES)))
                if len(running) == 8:
                    await running.pop(0)
            await asyncio.gather(*running)
        else:
            for _ in range(0, count, WINDOW):
                await settle([producer.send_nowait(topic, value) for value in VALUES[:WINDOW]], how)
        clock.stop(count)


async def aiokafka_produce(boot, topic, how, count, clock):
    from aiokafka import AIOKafkaProducer
    producer = AIOKafkaProducer(bootstrap_servers=boot, acks=1, linger_ms=5, max_batch_size=BATCH_BYTES)
    await producer.start()
    await producer.send_and_wait(topic, VALUES[0])
    clock.start()
    if how == "many":
        done, futures = 0, []
        while done < count:
            batch = producer.create_batch()
            while done < count and batch.append(key=None, value=VALUES[done % CHUNK], timestamp=None) is not None:
                done += 1
            batch.close()
            futures.append(await producer.send_batch(batch, topic, partition=0))
        await asyncio.gather(*futures)
    else:
        for _ in range(0, count, WINDOW):
            await settle([await producer.send(topic, value) for value in VALUES[:WINDOW]], how)
    clock.stop(count)
    await producer.stop()


async def kclient_consume(boot, topic, how, count, clock):
    from kclient import BEGINNING
    from kclient.aio import Consumer
    async with Consumer(bootstrap_servers=boot) as consumer:
        consumer.assign((topic, 0, BEGINNING))
        size, got = len((await consumer.poll_record()).value), 1
        clock.start()
        if how == "one":
            async for record in consumer:
                size += len(record.value)
                got += 1
                if got >= count:
                    break
        else:
            while got < count:
                values = (await consumer.poll_batch()).values()
                for value in values:
                    size += len(value)
                got += len(values)
        clock.stop(got)


async def aiokafka_consume(boot, topic, how, count, clock):
    from aiokafka import AIOKafkaConsumer, TopicPartition
    consumer = AIOKafkaConsumer(bootstrap_servers=boot, max_partition_fetch_bytes=BATCH_BYTES * 4)
    await consumer.start()
    consumer.assign([TopicPartition(topic, 0)])
    await consumer.seek_to_beginning()
    size, got = len((await consumer.getone()).value), 1
    clock.start()
    if how == "one":
        async for record in consumer:
            size += len(record.value)
            got += 1
            if got >= count:
                break
    else:
        while got < count:
            for records in (await consumer.getmany(timeout_ms=1000)).values():
                for record in records:
                    size += len(record.value)
                got += len(records)
    clock.stop(got)
    await consumer.stop()


if __name__ == "__main__":
    client, what, how, boot, topic, count = sys.argv[1:7]
    asyncio.run(globals()[f"{client}_{what}"](boot, topic, how, int(count), Clock()))
