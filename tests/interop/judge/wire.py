"""The judge's own few requests, spoken raw: create and delete topics, offsets, metadata.

So that no client under test is also the one that prepares or counts. Used by servers.py and the matrix. Old, non-flexible
versions that both Apache Kafka 4.4 and kbroker serve: Metadata 1, CreateTopics 2, DeleteTopics 1, ListOffsets 1.
"""
import socket
import struct
import time

ERRORS = {0: "NONE", 3: "UNKNOWN_TOPIC_OR_PARTITION", 5: "LEADER_NOT_AVAILABLE", 6: "NOT_LEADER_OR_FOLLOWER",
          36: "TOPIC_ALREADY_EXISTS", 41: "NOT_CONTROLLER"}


class WireError(Exception):
    """The broker answered an error code, or not at all."""


def name_of(code):
    return ERRORS.get(code, str(code))


def string(s):
    if s is None:
        return struct.pack(">h", -1)
    b = s.encode()
    return struct.pack(">h", len(b)) + b


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, n):
        if n < 0 or self.at + n > len(self.data):
            raise WireError("answer ends early")
        self.at += n
        return self.data[self.at - n:self.at]

    def number(self, fmt):
        return struct.unpack(">" + fmt, self.take(struct.calcsize(fmt)))[0]

    def string(self):
        n = self.number("h")
        return None if n < 0 else self.take(n).decode()

    def array(self, item):
        return [item() for _ in range(max(self.number("i"), 0))]


class Wire:
    """One connection, one request at a time."""

    def __init__(self, boot, timeout=15.0):
        host, port = boot.rsplit(":", 1)
        self.sock = socket.create_connection((host, int(port)), timeout=timeout)
        self.correlation = 0

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.sock.close()

    def exactly(self, n):
        out = b""
        while len(out) < n:
            part = self.sock.recv(n - len(out))
            if not part:
                raise WireError("the broker closed the connection")
            out += part
        return out

    def call(self, key, version, body):
        self.correlation += 1
        frame = struct.pack(">hhi", key, version, self.correlation) + string("judge") + body
        self.sock.sendall(struct.pack(">i", len(frame)) + frame)
        size = struct.unpack(">i", self.exactly(4))[0]
        r = Reader(self.exactly(size))
        got = r.number("i")
        if got != self.correlation:
            raise WireError(f"correlation id {got} in place of {self.correlation}")
        return r

    def brokers(self):
        r = self.call(3, 1, struct.pack(">i", 0))
        return r.array(lambda: (r.number("i"), r.string(), r.number("i"), r.string()))

    def partitions(self, topic):
        """{partition: (error, leader)}; empty when the topic is not there."""
        return {p: (err, leader) for p, (err, leader, _, _) in self._partitions(topic).items()}

    def replicas(self, topic):
        """{partition: (leader, replicas, in-sync replicas)}."""
        return {p: row[1:] for p, row in self._partitions(topic).items()}

    def _partitions(self, topic):
        r = self.call(3, 1, struct.pack(">i", 1) + string(topic))
        r.array(lambda: (r.number("i"), r.string(), r.number("i"), r.string()))
        r.number("i")
        out = {}

        def partition():
            err, p, leader = r.number("h"), r.number("i"), r.number("i")
            replicas = r.array(lambda: r.number("i"))
            out[p] = (err, leader, replicas, r.array(lambda: r.number("i")))

        def one():
            r.number("h"), r.string(), r.number("b")
            r.array(partition)

        r.array(one)
        return out

    def create(self, topic, partitions, configs=None):
        body = struct.pack(">i", 1) + string(topic) + struct.pack(">ihi", partitions, 1, 0)
        configs = configs or {}
        body += struct.pack(">i", len(configs)) + b"".join(string(k) + string(str(v)) for k, v in configs.items())
        r = self.call(19, 2, body + struct.pack(">ib", 15000, 0))
        r.number("i")
        res = r.array(lambda: (r.string(), r.number("h"), r.string()))
        if len(res) != 1 or res[0][1]:
            raise WireError(f"CreateTopics {topic}: {res}")
        deadline = time.monotonic() + 20
        while True:
            got = self.partitions(topic)
            if len(got) == partitions and all(e == 0 and leader >= 0 for e, leader in got.values()):
                try:   # the metadata may name the leader before the leader knows
                    return self.ends(topic, partitions)
                except WireError:
                    pass
            if time.monotonic() > deadline:
                raise WireError(f"{topic} has no leaders after 20 s: {got}")
            time.sleep(0.02)

    def delete(self, topic):
        r = self.call(20, 1, struct.pack(">i", 1) + string(topic) + struct.pack(">i", 15000))
        r.number("i")
        res = r.array(lambda: (r.string(), r.number("h")))
        if len(res) != 1 or res[0][1]:
            raise WireError(f"DeleteTopics {topic}: {res}")

    def grow(self, topic, count):
        r = self.call(37, 0, struct.pack(">i", 1) + string(topic) + struct.pack(">ii", count, -1) + struct.pack(">ib", 15000, 0))
        r.number("i")
        res = r.array(lambda: (r.string(), r.number("h"), r.string()))
        if len(res) != 1 or res[0][1]:
            raise WireError(f"CreatePartitions {topic}: {res}")

    def offset(self, topic, partition, at=-1):
        """at: -1 end, -2 beginning, else a timestamp in ms."""
        r = self.call(2, 1, struct.pack(">ii", -1, 1) + string(topic) + struct.pack(">iiq", 1, partition, at))
        out = []

        def one():
            r.number("i")
            err = r.number("h")
            r.number("q")
            out.append((err, r.number("q")))

        r.array(lambda: (r.string(), r.array(one)))
        if len(out) != 1 or out[0][0]:
            raise WireError(f"ListOffsets {topic}-{partition}: {out}")
        return out[0][1]

    def ends(self, topic, partitions):
        return [self.offset(topic, p) for p in range(partitions)]


    def produce(self, topic, batch, partition=0, acks=1):
        """One record batch by Produce 3; returns its base offset."""
        body = string(None) + struct.pack(">hii", acks, 15000, 1) + string(topic)
        r = self.call(0, 3, body + struct.pack(">iii", 1, partition, len(batch)) + batch)
        out = []

        def one():
            out.append((r.number("i"), r.number("h"), r.number("q"), r.number("q")))

        r.array(lambda: (r.string(), r.array(one)))
        if len(out) != 1 or out[0][1]:
            raise WireError(f"Produce {topic}: {out}")
        return out[0][2]

    def fetch(self, topic, partition, offset, max_bytes):
        """What Fetch 4 gives at an offset, as bytes: whole batches, the first one also when it is larger than max_bytes."""
        body = struct.pack(">iiiib", -1, 1000, 1, max_bytes, 0) + struct.pack(">i", 1) + string(topic)
        r = self.call(1, 4, body + struct.pack(">iiqi", 1, partition, offset, max_bytes))
        r.number("i")
        out = []

        def one():
            r.number("i")
            err = r.number("h")
            r.number("q"), r.number("q")
            r.array(lambda: (r.number("q"), r.number("q")))
            out.append((err, r.take(max(r.number("i"), 0))))

        r.array(lambda: (r.string(), r.array(one)))
        if len(out) != 1 or out[0][0]:
            raise WireError(f"Fetch {topic} at {offset}: {out[0][0] if out else 'nothing'}")
        return out[0][1]


def _crc_table():
    table = []
    for i in range(256):
        for _ in range(8):
            i = i >> 1 ^ (0x82F63B78 if i & 1 else 0)
        table.append(i)
    return table


_CRC = _crc_table()


def crc32c(data):
    c = 0xFFFFFFFF
    for b in data:
        c = c >> 8 ^ _CRC[(c ^ b) & 255]
    return c ^ 0xFFFFFFFF


def varint(n):
    n, out = (n << 1) ^ (n >> 63), b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def batch(values, timestamp=1_760_000_000_000):
    """A record batch v2 of keyless records."""
    records = b""
    for i, v in enumerate(values):
        body = b"\0" + varint(0) + varint(i) + varint(-1) + varint(len(v)) + v + varint(0)
        records += varint(len(body)) + body
    tail = struct.pack(">hiqqqhii", 0, len(values) - 1, timestamp, timestamp, -1, -1, -1, len(values)) + records
    return struct.pack(">qiibI", 0, 9 + len(tail), -1, 2, crc32c(tail)) + tail


def patient(boot, ask, timeout=60.0):
    """ask(wire) until the broker has taken up its partitions again after a start."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            with Wire(boot) as w:
                return ask(w)
        except WireError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def wait_ends(boot, topic, partitions, total, timeout=15.0):
    """Until the end offsets add up to total (acks=0 has no other sign of arrival); returns them as they are."""
    deadline = time.monotonic() + timeout
    with Wire(boot) as w:
        while True:
            ends = w.ends(topic, partitions)
            if sum(ends) >= total or time.monotonic() > deadline:
                return ends
            time.sleep(0.02)
