"""A Python client's run, measured: python_client.py CLIENT produce|consume one|batch BOOT TOPIC COUNT [NAME=VALUE...]; prints a JSON line.

CLIENT: kclient or confluent. The values (100 B) are made before the clock starts; consuming reads every value. Both are used as their documents say: with
what each has for single records, and with what it has for many. Settings are the properties that both know, and the same for both.
"""
import json
import sys
import time

SIZE, CHUNK = 100, 10_000
VALUES = [bytes([65 + i % 26]) * SIZE for i in range(CHUNK)]


def chunks(count):
    for done in range(0, count, CHUNK):
        yield min(CHUNK, count - done)


class Kclient:
    def __init__(self, boot, settings):
        import kclient
        self.kclient, self.config = kclient, {"bootstrap.servers": boot, **settings}

    def produce_one(self, topic, count):
        with self.kclient.Producer(self.config) as producer:
            producer.send_wait(topic, VALUES[0])  # connected
            yield
            for n in chunks(count):
                for value in VALUES[:n]:
                    producer.send(topic, value)
            producer.flush()
            yield count

    def produce_batch(self, topic, count):
        with self.kclient.Producer(self.config) as producer:
            producer.send_wait(topic, VALUES[0])
            yield
            for n in chunks(count):
                producer.send_many(topic, VALUES[:n])
            producer.flush()
            yield count

    def consumer(self, topic):
        consumer = self.kclient.Consumer(self.config)
        consumer.assign((topic, 0, self.kclient.BEGINNING))
        return consumer

    def consume_one(self, topic, count):
        with self.consumer(topic) as consumer:
            size, got = len(next(consumer).value), 0
            yield
            for record in consumer:
                size += len(record.value)
                got += 1
                if got == count:
                    break
            yield got

    def consume_batch(self, topic, count):
        with self.consumer(topic) as consumer:
            size, got = len(next(consumer).value), 0
            yield
            while got < count:
                values = consumer.poll_batch().values()
                for value in values:
                    size += len(value)
                got += len(values)
            yield got


class Confluent:
    def __init__(self, boot, settings):
        import confluent_kafka
        self.confluent, self.config = confluent_kafka, {"bootstrap.servers": boot, **settings}

    def producer(self, topic):
        producer = self.confluent.Producer(self.config)
        producer.produce(topic, VALUES[0])
        assert producer.flush(30) == 0
        return producer

    def produce_one(self, topic, count):
        producer = self.producer(topic)
        yield
        for n in chunks(count):
            for value in VALUES[:n]:
                try:
                    producer.produce(topic, value)
                except BufferError:
                    while True:
                        producer.poll(0.001)
                        try:
                            producer.produce(topic, value)
                            break
                        except BufferError:
                            pass
            producer.poll(0)
        assert producer.flush(120) == 0
        yield count

    def produce_batch(self, topic, count):
        producer = self.producer(topic)
        messages = [{"value": v} for v in VALUES]
        yield
        for n in chunks(count):
            left = messages[:n]
            while left:
                taken = producer.produce_batch(topic, left)
                left = left[taken:]
                producer.poll(0.001 if left else 0)
        assert producer.flush(120) == 0
        yield count

    def consumer(self, topic):
        consumer = self.confluent.Consumer({**self.config, "group.id": "bench", "enable.auto.commit": False, "auto.offset.reset": "earliest",
                                            "queued.min.messages": 10_000_000})  # by default it pauses for a second once 100,000 records wait
        consumer.assign([self.confluent.TopicPartition(topic, 0, self.confluent.OFFSET_BEGINNING)])
        while (first := consumer.poll(1)) is None:
            pass
        return consumer, len(first.value())

    def consume_one(self, topic, count):
        consumer, size = self.consumer(topic)
        got = 0
        yield
        while got < count:
            message = consumer.poll(1)
            if message is not None and message.error() is None:
                size += len(message.value())
                got += 1
        yield got
        consumer.close()

    def consume_batch(self, topic, count):
        consumer, size = self.consumer(topic)
        got = 0
        yield
        while got < count:
            for message in consumer.consume(CHUNK, 0.1):
                if message.error() is None:
                    size += len(message.value())
                    got += 1
        yield got
        consumer.close()


CLIENTS = {"kclient": Kclient, "confluent": Confluent}


def main():
    client, what, how, boot, topic, count = sys.argv[1:7]
    settings = dict(pair.split("=", 1) for pair in sys.argv[7:])
    run = getattr(CLIENTS[client](boot, settings), f"{what}_{how}")(topic, int(count))
    next(run)
    wall, cpu = time.perf_counter(), time.process_time()
    records = next(run)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    next(run, None)
    print(json.dumps({"records": records, "seconds": wall, "records_per_s": records / wall, "cpu_ns_per_record": cpu / records * 1e9}))


if __name__ == "__main__":
    main()
