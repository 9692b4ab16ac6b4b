"""The figures of the Python package: kclient against the newest confluent-kafka, and its asyncio API against the newest aiokafka; same broker, same
settings. Sections of run.py: python, asyncio."""
import subprocess

import measure
from measure import cache, drop_topic, fresh_topic, interleave, with_broker

SETTINGS = ["acks=1", "linger.ms=5", "enable.idempotence=false", "batch.num.messages=10000", "batch.size=1000000", "queue.buffering.max.messages=100000"]


def interpreter():
    """A Python with kclient of this tree and confluent-kafka."""
    folder = cache.CACHE / "python-bench"
    subprocess.run([cache.REPO / "bindings" / "python" / "venv.sh", folder, "confluent-kafka", "aiokafka"], check=True)
    return folder / "venv" / "bin" / "python"


def client(python, name, what, how, server, topic, count):
    settings = SETTINGS if what == "produce" else []
    return with_broker(server, [python, measure.BENCH / "python_client.py", name, what, how, server.boot, topic, count, *settings])


def produce(b, python, how, target):
    own, n = b.own(), b.size(2_000_000 if how == "batch" else 1_000_000, 100_000)

    def one(name):
        topic = fresh_topic(own, "py", 1)
        d = client(python, name, "produce", how, own, topic, n)
        drop_topic(own, topic)
        return d
    compare(b, f"produce, {'many at once' if how == 'batch' else 'one by one'}",
            interleave(b.rounds, kclient=lambda: one("kclient"), confluent=lambda: one("confluent")), target)


def consume(b, python, how, target):
    own, n = b.own(), b.size(2_000_000 if how == "batch" else 1_000_000, 100_000)
    topic = fresh_topic(own, "py", 1)
    client(python, "kclient", "produce", "batch", own, topic, n)
    r = interleave(b.rounds, kclient=lambda: client(python, "kclient", "consume", how, own, topic, n),
                   confluent=lambda: client(python, "confluent", "consume", how, own, topic, n))
    drop_topic(own, topic)
    compare(b, f"consume, {'batches' if how == 'batch' else 'one by one'}", r, target)


def compare(b, label, r, target):
    b.keep(label, r)
    ours, theirs = r["kclient"], r["confluent"]
    b.row(f"100 B, {label}: rate", ours["records_per_s"], "records/s", theirs["records_per_s"], target, at_least=True)
    b.row(f"100 B, {label}: CPU", ours["cpu_ns_per_record"], "ns/record", theirs["cpu_ns_per_record"])


def python(b):
    """kclient and confluent-kafka (newest) in Python: many records a call, and one by one."""
    if b.a.stand_in:
        print(f"{b.current:16} is of kclient alone")
        return
    interp = interpreter()
    for how, target in (("batch", 3), ("one", 1.5)):
        produce(b, interp, how, target)
        consume(b, interp, how, target)


ASYNC_PRODUCE = (  # what kclient does, what aiokafka does, ratio that is wanted
    ("gather", "gather", None),
    ("each", "each", 5),
    ("many", "gather", 5),
    ("many", "many", None),
)
ASYNC_LABEL = {"gather": "futures, gathered", "each": "futures, each awaited", "many": "many at once", "one": "async for", "batch": "batches"}


def async_client(python, name, what, how, server, topic, count):
    return with_broker(server, [python, measure.BENCH / "python_async_client.py", name, what, how, server.boot, topic, count])


def compare_async(b, what, ours, theirs, r, target):
    label = f"{what}, {ASYNC_LABEL[ours]}" + (f" (aiokafka: {ASYNC_LABEL[theirs]})" if theirs != ours else "")
    b.keep(f"asyncio {label}", r)
    b.row(f"100 B, {label}: rate", r["kclient"]["records_per_s"], "records/s", r["aiokafka"]["records_per_s"], target, at_least=True)
    b.row(f"100 B, {label}: CPU", r["kclient"]["cpu_ns_per_record"], "ns/record", r["aiokafka"]["cpu_ns_per_record"])


def async_produce(b, interp):
    own, n = b.own(), b.size(400_000, 50_000)

    def one(name, how):
        topic = fresh_topic(own, "py", 1)
        d = async_client(interp, name, "produce", how, own, topic, n)
        drop_topic(own, topic)
        return d
    for ours, theirs, target in ASYNC_PRODUCE:
        r = interleave(b.rounds, kclient=lambda: one("kclient", ours), aiokafka=lambda: one("aiokafka", theirs))
        compare_async(b, "produce", ours, theirs, r, target)


def async_consume(b, interp):
    own, n = b.own(), b.size(1_000_000, 100_000)
    topic = fresh_topic(own, "py", 1)
    client(interp, "kclient", "produce", "batch", own, topic, n)
    for how in ("one", "batch"):
        r = interleave(b.rounds, **{name: lambda name=name: async_client(interp, name, "consume", how, own, topic, n) for name in ("kclient", "aiokafka")})
        compare_async(b, "consume", how, how, r, 5)
    drop_topic(own, topic)


def python_asyncio(b):
    """kclient.aio and aiokafka (newest): sends in flight, many at once, async for, batches."""
    if b.a.stand_in:
        print(f"{b.current:16} is of kclient alone")
        return
    interp = interpreter()
    async_produce(b, interp)
    async_consume(b, interp)


SECTIONS = {"python": python, "asyncio": python_asyncio}
