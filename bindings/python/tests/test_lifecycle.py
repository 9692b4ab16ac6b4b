"""Ends of all kinds: exit with open clients, fork, multiprocessing, garbage collection, Ctrl-C. Each in a process of its own."""
import os
import signal
import subprocess
import sys
import textwrap
import time
from typing import Any

import kclient
import pytest
from kclient import Consumer


def run(code: str, *arguments: str, timeout: float = 60, **more: Any) -> "subprocess.CompletedProcess[str]":
    """A script: what it printed; it must not be killed by a signal."""
    p = subprocess.run([sys.executable, "-X", "dev", "-W", "ignore::ResourceWarning", "-c", textwrap.dedent(code), *arguments], capture_output=True,
                       text=True, timeout=timeout, **more)
    assert p.returncode >= 0, f"died of signal {-p.returncode}: {p.stdout}{p.stderr}"
    return p


def values(broker: str, topic: str, n: int) -> "list[Any]":
    with Consumer(bootstrap_servers=broker) as consumer:
        consumer.assign((topic, 0, kclient.BEGINNING))
        found: "list[Any]" = []
        while len(found) < n:
            batch = consumer.poll_batch(30)
            assert batch is not None, f"{len(found)} of {n}"
            found += batch.values()
        assert consumer.poll_batch(0.05) is None
        return found


OPEN = """
import sys, threading, time, kclient
broker, topic = sys.argv[1:3]
producer = kclient.Producer(bootstrap_servers=broker, linger_ms=60000)
producer.send_many(topic, [str(i) for i in range(1000)])
"""


@pytest.mark.parametrize("how", ["pass", "raise SystemExit(0)", "1 / 0", "del producer", "producer = None; import gc; gc.collect()",
                                 "threading.Thread(target=lambda: producer.send(topic, 'x') and time.sleep(0.2)).start()"])
def test_what_was_accepted_is_sent_however_the_interpreter_ends(broker: str, topic: str, how: str) -> None:
    run(OPEN + how, broker, topic)
    found = values(broker, topic, 1001 if "Thread" in how else 1000)
    assert found[:1000] == [str(i).encode() for i in range(1000)]


def test_what_cannot_be_sent_is_told_at_exit(topic: str) -> None:
    code = "import kclient._alive; kclient._alive.EXIT_S = 0.3"
    for how in ("", "del producer"):
        p = run(code + OPEN + how, "127.0.0.1:1", topic)
        assert "1000" in p.stderr and "not delivered" in p.stderr and p.returncode == 0


def test_exit_with_daemon_threads_in_waits(broker: str, topic: str) -> None:
    p = run(OPEN + """
consumer = kclient.Consumer(bootstrap_servers=broker, group_id=topic, topics=topic, auto_offset_reset="earliest")
other = kclient.Consumer(bootstrap_servers=broker)
other.assign((topic, 0, kclient.END))
full = kclient.Producer(bootstrap_servers="127.0.0.1:1", queue_buffering_max_messages=1, delivery_timeout_ms=1000)
def iterate():
    for record in consumer: pass
def poll():
    while True: other.poll_batch()
def send():
    while True: full.send(topic, "x")
for target in (iterate, poll, send):
    threading.Thread(target=target, daemon=True).start()
time.sleep(0.3)
print("end")
""", broker, topic)
    assert p.stdout == "end\n" and p.returncode == 0, p.stderr
    values(broker, topic, 1000)


def test_garbage_in_cycles(broker: str, topic: str) -> None:
    p = run("""
import sys, gc, kclient
broker, topic = sys.argv[1:3]
for i in range(30):
    client = kclient.Client(bootstrap_servers=broker)
    producer = kclient.Producer(client)
    consumer = kclient.Consumer(client)
    consumer.me = [consumer, producer]
    producer.send(topic, str(i), on_report=lambda r, p=producer: p)
    consumer.assign((topic, 0, 0))
    batch = consumer.poll_batch(30)
    view, record = memoryview(batch), batch[0]
    del client, producer, consumer, batch
    gc.collect()
    assert record.value == b"0" and len(view) > 0
print(len(view))
""", broker, topic)
    assert p.stdout and not p.stderr, p.stderr
    values(broker, topic, 30)


def test_fork(broker: str, topic: str) -> None:
    p = run("""
import os, sys, kclient
broker, topic = sys.argv[1:3]
producer = kclient.Producer(bootstrap_servers=broker, linger_ms=100)
consumer = kclient.Consumer(bootstrap_servers=broker)
consumer.assign((topic, 0, 0))
producer.send_wait(topic, "before")
batch = consumer.poll_batch(30)
producer.send(topic, "queued in the parent")
pid = os.fork()
if pid == 0:
    for call in (lambda: producer.send(topic, "x"), producer.flush, lambda: producer.send_many(topic, ["x"]), lambda: consumer.poll_batch(1),
                 lambda: producer.send_wait(topic, "x"), lambda: kclient.Admin(producer.client).list_topics(), consumer.why):
        try:
            call()
        except kclient.Forked as e:
            assert "child" in str(e)
        else:
            os._exit(3)
    assert batch.values() == [b"before"]
    with kclient.Producer(bootstrap_servers=broker) as mine:
        mine.send_wait(topic, "of the child")
    producer.close(); consumer.close()
    sys.exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
producer.send_wait(topic, "after")
print("parent", len(producer))
""", broker, topic)
    assert p.stdout == "parent 0\n", p.stderr
    assert sorted(values(broker, topic, 4)) == [b"after", b"before", b"of the child", b"queued in the parent"]


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing(broker: str, topic: str, method: str, tmp_path: Any) -> None:
    script = tmp_path / "pool.py"
    script.write_text(textwrap.dedent("""
        import multiprocessing, sys, kclient
        broker, topic = sys.argv[1:3]
        def work(i):
            with kclient.Producer(bootstrap_servers=broker) as producer:
                try:
                    return producer.send_wait(topic, str(i)).offset
                except kclient.KafkaError as e:
                    return str(e)
        def fail(i):
            kclient.Config(lingr_ms=1)
        if __name__ == "__main__":
            outer = kclient.Producer(bootstrap_servers=broker)
            outer.send(topic, "mine")
            with multiprocessing.get_context(sys.argv[3]).Pool(3) as pool:
                print(sorted(pool.map(work, range(10))))
                try:
                    pool.map(fail, [1])
                except kclient.ConfigError as e:   # an exception crosses processes
                    print(e.name)
        """))
    p = subprocess.run([sys.executable, "-W", "ignore", str(script), broker, topic, method], capture_output=True, text=True, timeout=120)
    assert p.returncode == 0 and p.stdout.endswith("KC_CONFIG\n"), p.stdout + p.stderr
    assert len(values(broker, topic, 11)) == 11


WAITS = {
    "poll_batch": "consumer.poll_batch()",
    "iteration": "next(consumer)",
    "poll": "consumer.poll()",
    "await_assigned": "stuck_consumer.await_assigned()",
    "flush": "stuck.flush()",
    "send_wait": "stuck.send_wait(topic, 'x')",
    "full queue": "[stuck.send(topic, 'x') for _ in range(10)]",
    "full queue, many": "stuck.send_many(topic, ['x'] * 10)",
    "reports": "list(stuck.reports(None))",
    "poll_reports": "stuck.poll_reports(None)",
    "close": "stuck.close()",
    "admin": "stuck_admin.list_topics(timeout=60)",
    "committed": "stuck_consumer.committed((topic, 0))",
}


@pytest.mark.parametrize("wait", WAITS)
def test_ctrl_c_ends_any_wait_at_once(broker: str, topic: str, wait: str) -> None:
    """The time from the signal to the exception is printed; the limit is generous, what it mostly is stands in _wait.py."""
    p = subprocess.Popen([sys.executable, "-W", "ignore", "-c", textwrap.dedent(f"""
        import sys, time, signal, kclient, kclient._alive
        signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored, where the tests run in the background
        kclient._alive.EXIT_S = 0.2
        broker, topic = sys.argv[1:3]
        consumer = kclient.Consumer(bootstrap_servers=broker)
        consumer.assign((topic, 0, kclient.END))
        stuck = kclient.Producer(bootstrap_servers="127.0.0.1:1", queue_buffering_max_messages=5)
        stuck.send_many(topic, ["x"] * 2)
        stuck_consumer = kclient.Consumer(bootstrap_servers="127.0.0.1:1", group_id="g", topics=topic)
        stuck_admin = kclient.Admin(bootstrap_servers="127.0.0.1:1")
        print("ready", flush=True)
        try:
            {WAITS[wait]}
        except KeyboardInterrupt:
            print("interrupted", time.time(), flush=True)
        assert consumer.poll_batch(0) is None   # all goes on
        """), broker, topic], stdout=subprocess.PIPE, text=True)
    assert p.stdout is not None and p.stdout.readline() == "ready\n"
    time.sleep(0.2)
    sent = time.time()
    p.send_signal(signal.SIGINT)
    line = p.stdout.readline()
    assert line.startswith("interrupted"), line
    latency = float(line.split()[1]) - sent
    assert latency < 5 and p.wait(60) == 0
    print(f"{wait}: {latency * 1000:.1f} ms")


def test_ctrl_c_loses_no_record(broker: str, topic: str) -> None:
    """A signal a millisecond, while records come: each is delivered once."""
    p = run("""
import os, signal, sys, threading, time, kclient
broker, topic = sys.argv[1:3]
class Tick(Exception): pass
armed = False
def handler(number, frame):
    global armed
    if armed:
        armed = False
        raise Tick
signal.signal(signal.SIGALRM, handler)
n, got, ticks = 3000, [], 0
def send():
    with kclient.Producer(bootstrap_servers=broker, linger_ms=0) as producer:
        for i in range(n):
            producer.send(topic, str(i))
            if i % 10 == 0: time.sleep(0.001)
threading.Thread(target=send).start()
consumer = kclient.Consumer(bootstrap_servers=broker)
consumer.assign((topic, 0, kclient.BEGINNING))
deadline = time.monotonic() + 50
while len(got) < n and time.monotonic() < deadline:
    signal.setitimer(signal.ITIMER_REAL, 0.0013)
    try:
        armed = True
        consumer.poll_record(1)   # what it gives is thrown away on purpose: only its waits are to be interrupted
        armed = False
    except Tick:
        ticks += 1
    given = consumer._given
    if given is not None and (not got or given[2] - 1 > got[-1]):
        got.append(given[2] - 1)
signal.setitimer(signal.ITIMER_REAL, 0)
print(got == list(range(n)), ticks > 10)
""", broker, topic)
    assert p.stdout == "True True\n", p.stdout + p.stderr


def test_ctrl_c_loses_no_report(topic: str) -> None:
    """A signal a millisecond, while reports of failures are made (which runs Python): each reaches its on_report."""
    p = run("""
import signal, sys, kclient
topic = sys.argv[1]
class Tick(Exception): pass
def handler(number, frame):
    if frame.f_code.co_filename.endswith("errors.py"):
        raise Tick
signal.signal(signal.SIGALRM, handler)
sys.unraisablehook = lambda told: None
n, got, ticks = 30000, [], 0
producer = kclient.Producer(bootstrap_servers="127.0.0.1:1")
producer.send_many(topic, ["x"] * n, on_report=lambda report: got.append(report.number))
producer.purge()
signal.setitimer(signal.ITIMER_REAL, 0.0013, 0.0013)
while producer._callbacks:
    try:
        if producer._drain(5_000_000) != 0:  # none comes any more
            break
    except Tick:
        ticks += 1
signal.setitimer(signal.ITIMER_REAL, 0)
print(sorted(got) == list(range(n)), ticks > 0)
""", topic)
    assert p.stdout == "True True\n", p.stdout + p.stderr


def test_import_leaves_no_descriptor_or_thread() -> None:
    p = run("import kclient, os, threading; print(len(os.listdir('/proc/self/task')), threading.active_count())")
    assert p.stdout == "1 1\n"


def test_a_client_closes_its_descriptors(broker: str, topic: str) -> None:
    def used() -> int:
        return len(os.listdir("/proc/self/fd"))
    before = used()
    for _ in range(5):
        with kclient.Producer(bootstrap_servers=broker) as producer:
            producer.send_wait(topic, "x")
        del producer
    deadline = time.monotonic() + 10
    while used() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert used() <= before
