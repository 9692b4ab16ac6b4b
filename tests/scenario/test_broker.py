"""kbroker's life on a real machine: ready, stopped, killed, locked, full, fed nonsense."""
import os
import signal
import socket
import struct
import subprocess
import time

from scene import KBROKER, Broker, equal, eventually, holds, kc, main, run, test


@test
def it_gets_ready_serves_stops_and_finds_everything_again(folder):
    b = Broker(folder / "d")
    kc(b, "topic", "create", "t", "--partitions", 2)
    kc(b, "produce", "-t", "t", "-p", 0, stdin="one\ntwo\n")
    equal(b.stop(), 0)
    names = sorted(os.listdir(folder / "d"))
    for wanted in ("__cluster_metadata-0", "t-0", "t-1", "meta.properties", "recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        if wanted not in names:
            raise AssertionError(f"{wanted} is not among {names}")
    b = Broker(folder / "d")
    equal(kc(b, "consume", "-t", "t", "-o", "beginning", "-e").stdout, "one\ntwo\n")
    kc(b, "produce", "-t", "t", "-p", 0, stdin="three\n")
    b.stop(signal.SIGKILL)
    b = Broker(folder / "d")
    equal(kc(b, "consume", "-t", "t", "-o", "beginning", "-e").stdout, "one\ntwo\nthree\n")
    equal(b.stop(signal.SIGINT), 0)


@test
def a_folder_in_use_and_a_port_in_use_are_named(folder):
    b = Broker(folder / "d")
    r = run(KBROKER, "run", "--data", folder / "d", "--listen", "127.0.0.1:0")
    equal(r.returncode, 1)
    holds(r.stderr, str(folder / "d"))
    r = run(KBROKER, "run", "--data", folder / "e", "--listen", b.address)
    equal(r.returncode, 1)
    holds(r.stderr, b.address)
    equal(kc(b, "cluster").returncode, 0)


@test
def ephemeral_leaves_nothing(folder):
    env = {**os.environ, "TMPDIR": str(folder)}
    p = subprocess.Popen([KBROKER, "run", "--ephemeral", "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, cwd=folder)
    try:
        address = p.stdout.readline().decode().split()[1]
        equal(run(os.path.join(os.path.dirname(KBROKER), "kc"), "produce", "-b", address, "-t", "t", stdin="x\n").returncode, 0)
        p.send_signal(signal.SIGTERM)
        equal(p.wait(20), 0)
    finally:
        if p.poll() is None:
            p.kill()
            p.wait()
    equal(os.listdir(folder), [])


def exchange(port, data, wait=5):
    """What the broker answers until it closes; None when it keeps the connection open."""
    with socket.create_connection(("127.0.0.1", port), 5) as s:
        s.settimeout(wait)
        s.sendall(data)
        got = b""
        try:
            while True:
                more = s.recv(65536)
                if not more:
                    return got
                got += more
        except (TimeoutError, socket.timeout):
            return None
        except ConnectionError:
            return got


@test
def SE_05_nonsense_frames_close_the_connection_and_the_node_serves_on(folder):
    b = Broker(folder / "d")
    cases = {
        "HTTP": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        "TLS": bytes.fromhex("16030100c8010000c40303") + b"\0" * 200,
        "negative length": struct.pack(">i", -5) + b"abc",
        "huge length": struct.pack(">i", 2**31 - 1) + b"abc",
        "zero length": struct.pack(">i", 0),
        "unknown API": struct.pack(">ihhih", 10, 999, 0, 1, -1),
        "Produce of version 99": struct.pack(">ihhih", 10, 0, 99, 1, -1),
        "truncated Metadata": struct.pack(">ihhih", 14, 3, 1, 1, -1) + struct.pack(">i", 2**30),
    }
    for name, data in cases.items():
        got = exchange(b.port, data)
        if got is None:
            raise AssertionError(f"{name}: the connection stays open")
    equal(kc(b, "cluster").returncode, 0)
    log = b.text()
    holds(log, "HTTP", "TLS")


@test
def PR_04_ApiVersions_too_new_is_answered_in_version_0(folder):
    b = Broker(folder / "d")
    frame = struct.pack(">hhih", 18, 77, 42, -1) + b"\0\0\0\0"
    with socket.create_connection(("127.0.0.1", b.port), 5) as s:
        s.settimeout(5)
        s.sendall(struct.pack(">i", len(frame)) + frame)
        size = struct.unpack(">i", s.recv(4, socket.MSG_WAITALL))[0]
        body = s.recv(size, socket.MSG_WAITALL)
    correlation, error, count = struct.unpack(">ihi", body[:10])
    equal((correlation, error), (42, 35))
    equal(len(body), 10 + count * 6, "version 0 layout")
    apis = {struct.unpack(">hhh", body[10 + i * 6:16 + i * 6]) for i in range(count)}
    equal(any(k == 0 and low == 0 for k, low, _ in apis), True, "Produce from version 0")


@test
def a_full_disk_refuses_the_batch_keeps_the_log_whole_and_heals(folder):
    small = folder / "small"
    small.mkdir()
    made = run("mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", small)
    equal(made.returncode, 0, f"mount: {made.stderr}")
    try:
        b = Broker(small / "d", "--set", "log.segment.bytes=4194304")
        kc(b, "topic", "create", "t")
        value = "x" * 999
        r = kc(b, "produce", "-t", "t", "-z", "none", "--set", "delivery.timeout.ms=4000", stdin=(value + "\n") * 40000, timeout=120)
        equal(r.returncode, 1, "a full disk fails the producer")
        holds(r.stderr, "records failed")
        holds(b.text().lower(), "space")
        stored = kc(b, "consume", "-t", "t", "-o", "beginning", "-e", "-f", "%S\\n").stdout.split()
        if not stored or set(stored) != {"999"}:
            raise AssertionError(f"{len(stored)} records, sizes {set(stored)}")
        equal(kc(b, "topic", "create", "other").returncode in (0, 1), True)
        r = run(os.path.join(os.path.dirname(KBROKER), "kc"), "cluster", "-b", b.address)
        equal(r.returncode, 0, "the node serves on")
        made = run("mount", "-o", "remount,size=64m", small)
        equal(made.returncode, 0, made.stderr)
        eventually("writes go on once there is space", lambda: kc(b, "produce", "-t", "t", "--set", "delivery.timeout.ms=5000", stdin="again\n").returncode == 0)
        equal(kc(b, "consume", "-t", "t", "-o", "-1", "-e").stdout, "again\n")
        b.stop()
        b = Broker(small / "d")
        after = kc(b, "consume", "-t", "t", "-o", "beginning", "-e", "-f", "%o\\n").stdout.split()
        equal(after, [str(i) for i in range(len(after))], "offsets are continuous")
        b.stop()
    finally:
        run("umount", "-l", small)


@test
def SE_08_pipelined_requests_do_not_grow_memory(folder):
    b = Broker(folder / "d")

    def rss():
        with open(f"/proc/{b.p.pid}/status") as f:
            return int(next(x for x in f if x.startswith("VmRSS")).split()[1])

    before = rss()
    big = struct.pack(">hhih", 3, 1, 7, -1) + struct.pack(">i", 2000) + b"".join(struct.pack(">h", 20) + b"%020d" % i for i in range(2000))
    frame = struct.pack(">i", len(big)) + big
    with socket.create_connection(("127.0.0.1", b.port), 5) as s:
        s.settimeout(0.5)
        sent = 0
        end = time.monotonic() + 5
        try:
            while sent < 10000 and time.monotonic() < end:
                s.sendall(frame)
                sent += 1
        except (TimeoutError, socket.timeout):
            pass  # the broker has stopped reading: that is the point
        equal(kc(b, "cluster").returncode, 0, "other connections are served")
        grown = rss() - before
        if grown > 64 * 1024:
            raise AssertionError(f"{grown} kB more after {sent} pipelined requests")


@test
def SE_09_idle_connections_are_closed(folder):
    b = Broker(folder / "d", "--set", "connections.max.idle.ms=4000")
    fds = lambda: len(os.listdir(f"/proc/{b.p.pid}/fd"))  # noqa: E731
    before = fds()
    idle = [socket.create_connection(("127.0.0.1", b.port), 5) for _ in range(1000)]
    eventually("many are open at once", lambda: fds() >= before + 300)
    eventually("all are closed", lambda: fds() <= before + 2)
    for s in idle:
        s.close()
    equal(kc(b, "cluster").returncode, 0)


@test
def a_fault_rule_makes_the_broker_misbehave_on_order(folder):
    rules = folder / "rules.json"
    rules.write_text('[{"api": "Produce", "nth": 1, "error": "NOT_LEADER_OR_FOLLOWER"}]')
    b = Broker(folder / "d", "--faults", rules)
    kc(b, "topic", "create", "t")
    equal(kc(b, "produce", "-t", "t", stdin="a\nb\n").returncode, 0)
    equal(kc(b, "consume", "-t", "t", "-o", "beginning", "-e").stdout, "a\nb\n")
    rules.write_text('[{"api": "Produce", "nth": "first"}]')
    r = run(KBROKER, "run", "--data", folder / "e", "--listen", "127.0.0.1:0", "--faults", rules)
    equal(r.returncode != 0, True)
    holds(r.stderr, "nth")


main()
