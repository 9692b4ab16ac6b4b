"""kbroker's life on a real machine: ready, stopped, killed, locked, full, fed nonsense."""
import json
import os
import re
import shutil
import select
import signal
import socket
import struct
import subprocess
import sys
import time
import urllib.request

from scene import KBROKER, ROOT, Broker, equal, eventually, holds, kc, line_of, main, run, test

sys.path.insert(0, str(ROOT / "tests" / "interop"))
from judge import wire  # noqa: E402


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
        address = line_of(p).split()[1]
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
def a_batch_with_a_wrong_checksum_is_refused_and_not_stored(folder):
    b = Broker(folder / "d")
    kc(b, "topic", "create", "t")
    good = wire.batch([b"one", b"two"])
    with wire.Wire(b.address) as w:
        for at in (17, 18, 20, 30, 60, len(good) - 1):  # the checksum itself, and what it covers
            bad = bytearray(good)
            bad[at] ^= 0x10
            try:
                w.produce("t", bytes(bad))
            except wire.WireError as e:
                holds(str(e), "(0, 2, -1, -1)")  # CORRUPT_MESSAGE
            else:
                raise AssertionError(f"byte {at} was changed, and the batch accepted")
        equal(kc(b, "consume", "-t", "t", "-o", "beginning", "-e").stdout, "", "nothing is stored")
        w.produce("t", good)
    equal(kc(b, "consume", "-t", "t", "-o", "beginning", "-e", "-f", "%o %s ").stdout, "0 one 1 two ")
    holds(b.text(), "t-0 was refused", "checksum")


EIO_SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>
static int bad(int fd) { /* the logs of topic "t", once the file is there */
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    path[n > 0 ? n : 0] = 0;
    return strstr(path, "/t-0/") && strstr(path, ".log") && access(getenv("EIO_WHEN"), F_OK) == 0;
}
#define SHIM(name, params, args) ssize_t name params { \
    ssize_t (*real) params = dlsym(RTLD_NEXT, #name); \
    if (bad(fd)) { errno = EIO; return -1; } \
    return real args; }
SHIM(pwrite, (int fd, const void *p, size_t n, off_t at), (fd, p, n, at))
SHIM(pwrite64, (int fd, const void *p, size_t n, off_t at), (fd, p, n, at))
SHIM(pwritev, (int fd, const struct iovec *v, int n, off_t at), (fd, v, n, at))
SHIM(pwritev64, (int fd, const struct iovec *v, int n, off_t at), (fd, v, n, at))
SHIM(pwritev2, (int fd, const struct iovec *v, int n, off_t at, int flags), (fd, v, n, at, flags))
SHIM(pwritev64v2, (int fd, const struct iovec *v, int n, off_t at, int flags), (fd, v, n, at, flags))
"""


@test
def a_write_that_fails_takes_the_partition_offline_and_leaves_the_rest(folder):
    (folder / "shim.c").write_text(EIO_SHIM)
    made = run("gcc", "-shared", "-fPIC", "-o", folder / "shim.so", folder / "shim.c", "-ldl")
    equal(made.returncode, 0, made.stderr)
    when = folder / "when"
    b = Broker(folder / "d", prefix=["env", "ASAN_OPTIONS=verify_asan_link_order=0", f"LD_PRELOAD={folder}/shim.so", f"EIO_WHEN={when}"])
    kc(b, "topic", "create", "t", "other")
    equal(kc(b, "produce", "-t", "t", stdin="kept\n").returncode, 0)
    when.touch()
    r = kc(b, "produce", "-t", "t", "--set", "delivery.timeout.ms=3000", stdin="lost\n")
    equal(r.returncode, 1)
    holds(r.stderr, "KAFKA_STORAGE_ERROR", "1 of 1 records failed")
    holds(b.text(), "t-0", "offline", "Input/output error")
    equal(kc(b, "produce", "-t", "other", stdin="fine\n").returncode, 0, "the node serves on")
    equal(kc(b, "consume", "-t", "other", "-o", "beginning", "-e").stdout, "fine\n")
    when.unlink()
    equal(b.stop(), 0)
    b = Broker(folder / "d")
    equal(kc(b, "consume", "-t", "t", "-o", "beginning", "-e").stdout, "kept\n", "the log is whole after a restart")
    equal(kc(b, "produce", "-t", "t", stdin="more\n").returncode, 0)
    equal(kc(b, "consume", "-t", "t", "-o", "beginning", "-e").stdout, "kept\nmore\n")


@test
def a_folder_without_permission_is_named(folder):
    kbroker = folder / "kbroker"
    shutil.copy(KBROKER, kbroker)
    os.chmod(folder, 0o755)
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    (folder / "closed").mkdir(mode=0o755)
    for data in (folder / "closed", folder / "closed" / "d", folder / "new"):
        r = run(*nobody, kbroker, "run", "--data", data, "--listen", "127.0.0.1:0")
        equal(r.returncode, 1, data)
        holds(r.stderr, str(data), "Permission denied", "--data")
    ours = folder / "ours"
    (ours / "__cluster_metadata-0").mkdir(parents=True)
    os.chmod(ours / "__cluster_metadata-0", 0o700)
    os.chown(ours, 65534, 65534)
    r = run(*nobody, kbroker, "run", "--data", ours, "--listen", "127.0.0.1:0")
    equal(r.returncode, 1)
    holds(r.stderr, "__cluster_metadata-0", "permissions")


@test
def a_properties_file_with_wrong_lines_is_refused_with_the_line(folder):
    p = folder / "server.properties"
    for text, words in (("# a\n\nlog.retention.hour=5\n", [":3:", "log.retention.hours"]), ("num.partitions=three\n", [":1:", "num.partitions", "whole number"]),
                        ("log.dirs=/tmp/a,/tmp/b\n", ["log.dirs", "name one"]), ("no.such.thing.at.all=1\n", [":1:", "no.such.thing.at.all"])):
        p.write_text(text)
        r = run(KBROKER, "run", p)
        equal(r.returncode, 2, text)
        holds(r.stderr, *words)
    r = run(KBROKER, "run", folder)
    equal(r.returncode, 1)
    holds(r.stderr, str(folder), "directory")
    p.write_text("num.partitions=3\nbackground.threads=4\n")
    b = Broker(folder / "d", p)
    kc(b, "topic", "create", "t")
    holds(kc(b, "topic", "describe", "t").stdout, "3 partitions")
    holds(b.text(), "WARN", "background.threads")


@test
def closed_standard_descriptors_are_no_place_for_logs(folder):
    # Whatever it opens first would get their numbers, and log lines would go into data files.
    p = subprocess.Popen(["bash", "-c", f"exec {KBROKER} run --data {folder}/d --listen 127.0.0.1:0 <&- >&- 2>&-"])
    try:
        log = folder / "d" / ".lock"
        eventually("it runs", lambda: (folder / "d" / "__cluster_metadata-0").exists())
        time.sleep(0.3)
        for fd in (0, 1, 2):
            equal(os.readlink(f"/proc/{p.pid}/fd/{fd}"), "/dev/null")
        p.send_signal(signal.SIGTERM)
        equal(p.wait(20), 0)
        equal(len(log.read_text().splitlines()), 1, "the lock file has a process id, no log lines")
    finally:
        if p.poll() is None:
            p.kill()
            p.wait()
    b = Broker(folder / "d")
    equal(b.stop(), 0)


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
    ends = select.poll()
    for s in idle:
        ends.register(s, select.POLLIN)
    eventually("all are closed", lambda: len(ends.poll(0)) == len(idle))
    eventually("their descriptors are given back", lambda: fds() < before + 100)  # others may have found the port, too
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


@test
def it_explains_its_properties(folder):
    r = run(KBROKER, "explain")
    equal((r.returncode, [line for line in r.stdout.splitlines() if len(line) > 80], "Known to Apache Kafka, without effect" in r.stdout), (0, [], False))
    every = [json.loads(line) for line in run(KBROKER, "explain", "--json").stdout.splitlines()]
    found = {(e["scope"], e["name"]): e for e in every}
    equal(len(found), len(every), "names of one scope")
    e = found["topic", "retention.ms"]
    equal((e["type"], e["default"], e["synonyms"].split(",")[0], e["ignored"]), ("integer", "604800000", "log.retention.ms", False))
    equal(found["broker", "authorizer.class.name"]["ignored"], True)
    # What a broker that runs tells of itself is the same table.
    b = Broker(folder / "d")
    told = kc(b, "config", "describe", "broker", "0", "--all", "--json").stdout
    equal(sorted(json.loads(line)["name"] for line in told.splitlines()), sorted(name for (scope, name), e in found.items() if scope == "broker" and not e["ignored"]))
    r = run(KBROKER, "explain", "min.insync.replicas", "retention.sm")
    equal((r.returncode, r.stdout.count("min.insync.replicas\n")), (1, 2))
    holds(r.stderr, "retention.ms")
    for args, words in ((["--jsn"], "--json"), (["-x"], "no option")):
        r = run(KBROKER, "explain", *args)
        equal((r.returncode, r.stdout), (2, ""))
        holds(r.stderr, words)


@test
def the_admin_port_listens_where_it_is_told(folder):
    b = Broker(folder / "d", "--set", "admin.listener=127.0.0.1:0")
    url = re.search(r"admin port: (http://127.0.0.1:\d+)/faults", b.text()).group(1)
    with urllib.request.urlopen(f"{url}/faults", timeout=20) as r:
        equal(json.loads(r.read()), {"rules": []})
    taken = url.rsplit(":", 1)[1]
    for address, words in ((f"127.0.0.1:{taken}", ["in use"]), ("127.0.0.1", ["HOST:PORT"]), ("127.0.0.1:x", ["HOST:PORT"]), ("127.0.0.1:70000", ["HOST:PORT"]),
                           ("no.such.host.invalid:1", ["host's name"])):
        r = run(KBROKER, "run", "--data", folder / "e", "--listen", "127.0.0.1:0", "--set", f"admin.listener={address}")
        if r.returncode == 0:
            raise AssertionError(f"admin.listener={address} is taken")
        holds(r.stderr, "admin.listener", *words)
    equal(b.stop(), 0)


main()
