"""kc produce --guid, kc guid get and kc guid stats as a person uses them, on a topic with message.guid.dedup=true, on one without, and on a cluster."""
import base64
import json
import re
import uuid

from scene import KC, Broker, equal, eventually, holds, kc, main, run, test

ID = "01890a5d-ac96-774b-bcce-b302099a8057"
OTHER = "01890a5d-ac96-774b-bcce-b302099a8058"


def topic(b, name, *options):
    equal(kc(b, "topic", "create", name, "--config", "message.guid.dedup=true", *options).returncode, 0)


def produce(b, *options, stdin):
    return kc(b, "produce", *options, stdin=stdin)


def get(b, name, guid, *options):
    return kc(b, "guid", "get", "-t", name, guid, *options)


@test
def wrong_words_are_usage_errors(folder):
    for args, words in (
        (["produce", "-t", "x", "--guid", "nonsense"], ["nonsense", "UUID", "01890a5d"]), (["produce", "-t", "x", f"--guid={ID}0"], ["UUID"]),
        (["produce", "-t", "x", "--guid", ID, "--guid-from", "key"], ["--guid-from", "one of them"]), (["produce", "-t", "x", "--guid-from", "value"], ["key, header:NAME or field"]),
        (["produce", "-t", "x", "--guid-from", "header:"], ["header:NAME"]), (["produce", "-t", "x", "--guid-from", "key"], ["-K SEP"]),
        (["produce", "-t", "x", "--guid-from", "header:id"], ["-H NAME=VALUE"]), (["guid", "get", "-t", "x"], ["needs ID"]), (["guid", "get", ID], ["-t TOPIC"]),
        (["guid", "get", "-t", "x", ID[:-1]], ["no UUID", "01890a5d"]), (["guid", "get", "-t", "x", ID, "--base64"], ["--json"]), (["guid", "stats"], ["-t TOPIC"]),
        (["guid", "gte"], ["get"]), (["guid", "get", "-t", "x", ID, "-p", "-1"], ["--partition"]),
    ):
        r = run(KC, *args)
        equal((r.returncode, r.stdout), (2, ""), " ".join(args))
        holds(r.stderr, *words)
    for args in (["guid", "get"], ["guid", "stats"], ["produce"]):
        r = run(KC, *args, "--help")
        equal((r.returncode, [line for line in r.stdout.splitlines() if len(line) > 80]), (0, []), f"{args} --help")
        holds(r.stdout, "examples:")


@test
def a_record_under_an_id_is_stored_once_and_found(folder):
    b = Broker(folder / "d")
    topic(b, "t", "--partitions", 3)
    r = get(b, "t", ID)
    equal((r.returncode, r.stderr), (1, ""))
    holds(r.stdout, "unknown", ID, "message.guid.window.ms")
    equal(json.loads(get(b, "t", ID, "--json").stdout), {"guid": ID, "state": "unknown"})
    r = produce(b, "-t", "t", "--guid", ID, "-H", "trace=9", stdin="paid\n")
    equal((r.returncode, r.stdout, r.stderr), (0, "", ""))
    r = produce(b, "-t", "t", "--guid", ID.upper(), stdin="paid\n")
    equal((r.returncode, r.stdout), (0, ""), r.stderr)
    holds(r.stderr, "record 1 was stored before: partition ", "offset 0")
    equal("another" in r.stderr, False)
    r = produce(b, "-t", "t", f"--guid={ID.replace('-', '')}", "--reports", stdin="paid twice\n")
    holds(r.stderr, "with another key or value, which stays")
    report = json.loads(r.stdout)
    equal((report["record"], report["offset"], report["error"], report["guid"], report["duplicate"], report["other_payload"]), (1, 0, "", ID, True, True))
    equal(kc(b, "consume", "-t", "t", "-o", "beginning", "-e").stdout, "paid\n")
    r = get(b, "t", ID)
    equal((r.returncode, r.stderr), (0, ""))
    found = dict(line.split(None, 1) for line in r.stdout.splitlines() if not line.startswith("header"))
    equal((found["partition"], found["offset"], found["value"], found["key"]), (str(report["partition"]), "0", "paid", "(null)"))
    equal(re.fullmatch(r"\d{13} \(20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z\)", found["timestamp"]) is not None, True, found["timestamp"])
    holds(r.stdout, "header     trace=9\n", f"header     guid={ID}\n")
    j = json.loads(get(b, "t", ID, "--json").stdout)
    equal((j["guid"], j["state"], j["partition"], j["offset"], j["record"]["value"], j["record"]["guid"]), (ID, "found", report["partition"], 0, "paid", ID))
    equal(j["timestamp"], j["record"]["timestamp"])
    j = json.loads(get(b, "t", ID, "--json", "--base64").stdout)
    equal(dict(j["record"]["headers"])["guid"], base64.b64encode(uuid.UUID(ID).bytes).decode())
    equal(get(b, "t", ID, "-p", report["partition"]).returncode, 0)
    equal(get(b, "t", ID, "-p", (report["partition"] + 1) % 3).returncode, 1)
    r = get(b, "t", ID, "-p", 9)
    equal((r.returncode, r.stdout), (1, ""))
    holds(r.stderr, "no such partition")
    equal(b.stop(), 0)


@test
def one_id_is_one_record(folder):
    b = Broker(folder / "d")
    topic(b, "t")
    r = produce(b, "-t", "t", "--guid", ID, stdin="a\nb\n")
    equal((r.returncode, r.stdout), (1, ""))
    holds(r.stderr, "more than one record", "nothing was sent", "--guid-from")
    equal(kc(b, "consume", "-t", "t", "-o", "beginning", "-e").stdout, "")
    equal(produce(b, "-t", "t", "--guid", ID, "-c", "1", stdin="a\nb\n").returncode, 0)
    equal(produce(b, "-t", "t", "--guid", OTHER, "-D", "\\0", stdin="a\nb\n").returncode, 0)
    equal(produce(b, "-t", "t", "--guid", ID, stdin="").returncode, 0)
    equal(kc(b, "consume", "-t", "t", "-o", "beginning", "-e", "-f", "%s|").stdout, "a|a\nb\n|")


@test
def ids_are_made_or_taken_out_of_records(folder):
    b = Broker(folder / "d")
    topic(b, "made")
    r = produce(b, "-t", "made", "--guid", "--reports", stdin="a\nb\n")
    equal(r.returncode, 0, r.stderr)
    made = [json.loads(line) for line in r.stdout.splitlines()]
    equal([uuid.UUID(m["guid"]).version for m in made], [7, 7])
    equal([m["duplicate"] for m in made], [False, False])
    for m, value in zip(made, "ab"):
        equal(json.loads(get(b, "made", m["guid"], "--json").stdout)["record"]["value"], value)
    topic(b, "from", "--partitions", 4)
    ids = [str(uuid.uuid4()) for _ in range(4)]
    raw = uuid.UUID(ids[3]).bytes
    equal(produce(b, "-t", "from", "-K", "=", "--guid-from", "key", stdin=f"{ids[0]}=by key\n").returncode, 0)
    equal(produce(b, "-t", "from", "-H", f"order={ids[1]}", "--guid-from", "header:order", stdin="by header\n").returncode, 0)
    equal(produce(b, "-t", "from", "--guid-from", "field", stdin=f"{ids[2]} by field and more\n{ids[2]}\tanother\n").returncode, 0)
    line = json.dumps({"value": base64.b64encode(b"by 16 bytes").decode(), "headers": [["id", base64.b64encode(raw).decode()]]})
    equal(produce(b, "-t", "from", "--json", "--base64", "--guid-from", "header:id", stdin=line + "\n").returncode, 0)
    for guid, value in zip(ids, ("by key", "by header", "by field and more", "by 16 bytes")):
        equal(json.loads(get(b, "from", guid, "--json").stdout)["record"]["value"], value)
    equal(len(kc(b, "consume", "-t", "from", "-o", "beginning", "-e").stdout.splitlines()), 4)
    for options, text, words in ((["--guid-from", "field"], "x y\n", ["input line 1", "first field", "'x'", "no id"]), (["--guid-from", "field"], "\n", ["there is none"]),
                                 (["-K", ":", "--guid-from", "key"], "plain\n", ["key", "there is none"]), (["-H", "a=1", "--guid-from", "header:b"], "v\n", ["header b"]),
                                 (["--json", "--guid-from", "field"], '{"value":"v"}\n', ["member guid", "there is none"]), (["--json"], '{"value":"v","guid":"7"}\n', ["member guid", "'7'"]),
                                 (["--json"], '{"value":"v","guid":7}\n', ["guid", "UUID"]), (["--guid", ID, "-H", "guid=x"], "v\n", ["KC_BAD_GUID"])):
        r = produce(b, "-t", "from", *options, stdin=text)
        equal((r.returncode, r.stdout), (1, ""), f"{options} {text}")
        holds(r.stderr, *words)
    # The line that is named is the one that is wrong, whatever was skipped before it or looked at behind it.
    for line, options, text in ((3, ["--guid", ID], '\n\n{"value":1}\n'), (2, ["--guid", ID], '\n{"value":\n\n\n'), (2, ["--guid", ID, "-c", "1"], '\n7\n\n{"value":"v"}\n'),
                                (1, ["--guid", ID], "{\n"), (5, ["--guid-from", "field"], '\n\n\n\n{"value":"v"}\n'), (3, ["--guid-from", "header:id"], '\n\n{"value":"v"}\n\n'),
                                (2, ["--guid-from", "key"], '\n{"value":"v","key":"k"}'), (4, ["--guid"], '\n\n\n{"value":"v","guid":"7"}\n')):
        r = produce(b, "-t", "from", "--json", *options, stdin=text)
        equal((r.returncode, r.stdout), (1, ""), f"{options} {text}")
        holds(r.stderr, f"input line {line} is no record")
    equal(len(kc(b, "consume", "-t", "from", "-o", "beginning", "-e").stdout.splitlines()), 4)


@test
def copies_keep_their_ids(folder):
    b = Broker(folder / "d")
    topic(b, "a", "--partitions", 2)
    topic(b, "b", "--partitions", 5)
    equal(produce(b, "-t", "a", "--guid", "-z", "zstd", stdin="".join(f"{i}\n" for i in range(100))).returncode, 0)
    for options in (["--json"], ["--json", "--base64"]):
        lines = kc(b, "consume", "-t", "a", "-o", "beginning", "-e", *options).stdout
        equal(len({json.loads(line)["guid"] for line in lines.splitlines()}), 100)
        lines = re.sub(r'"partition":\d+,', "", lines)
        r = produce(b, "-t", "b", *options, stdin=lines)
        equal(r.returncode, 0, r.stderr)
    holds(r.stderr, "was stored before: partition ", "100 of 100 records were stored before")
    equal("another" in r.stderr, False)
    equal(sorted(map(int, kc(b, "consume", "-t", "b", "-o", "beginning", "-e").stdout.split())), list(range(100)))


@test
def many_duplicates_are_summed_up(folder):
    b = Broker(folder / "d")
    topic(b, "t", "--partitions", 3)
    lines = "".join(f"{uuid.uuid4()} {i}\n" for i in range(1000))
    equal(produce(b, "-t", "t", "--guid-from", "field", stdin=lines).stderr, "")
    for restart in (False, True):
        if restart:
            equal(b.stop(), 0)
            b = Broker(folder / "d")
        r = produce(b, "-t", "t", "--guid-from", "field", stdin=lines)
        equal(r.returncode, 0, r.stderr)
        equal(len(r.stderr.splitlines()), 6, r.stderr)
        holds(r.stderr, "1000 of 1000 records were stored before")
    equal(sorted(map(int, kc(b, "consume", "-t", "t", "-o", "beginning", "-e").stdout.split())), list(range(1000)))
    s = json.loads(kc(b, "guid", "stats", "-t", "t", "--json").stdout)
    equal((s["topic"], [p["partition"] for p in s["partitions"]]), ("t", [0, 1, 2]))
    equal(sum(p["entries"] for p in s["partitions"]), 1000)
    equal(sum(p["hits"] for p in s["partitions"]) >= 1000, True, str(s))
    equal({p["window_ms"] for p in s["partitions"]}, {3600000})
    r = kc(b, "guid", "stats", "-t", "t")
    equal(r.returncode, 0, r.stderr)
    table = [line.split() for line in r.stdout.splitlines()]
    equal((table[0][:4], [row[0] for row in table[1:]], table[-1][1]), (["partition", "leader", "entries", "runs"], ["0", "1", "2", "all"], "1000"))


@test
def records_without_ids_stand_beside_those_with(folder):
    b = Broker(folder / "d")
    topic(b, "t")
    lines = "".join(json.dumps({"value": f"v{i}", **({"guid": str(uuid.UUID(int=i))} if i % 3 else {})}) + "\n" for i in range(30))
    for n, options in enumerate((["-z", "none"], ["-z", "gzip"], ["-z", "lz4", "-a", "1"], ["-a", "0"], ["-z", "snappy", "--set", "enable.idempotence=false"], ["-z", "zstd"])):
        r = produce(b, "-t", "t", "--json", *options, "--reports", stdin=lines)
        equal(r.returncode, 0, r.stderr)
        seen = kc(b, "consume", "-t", "t", "-o", "beginning", "-e", "-f", "%o %s\\n").stdout.split()
        at = dict(zip(seen[::2], seen[1::2]))
        equal(sorted(at.values()), sorted(f"v{i}" for i in range(30) for _ in range(1 if i % 3 else n + 1)), f"{options}")
        for report in map(json.loads, r.stdout.splitlines()):
            i = report["record"] - 1
            if options != ["-a", "0"]:
                equal((report.get("duplicate"), at[str(report["offset"])]), (n > 0 if i % 3 else None, f"v{i}"), f"{options}: {report}")
    equal(kc(b, "consume", "-t", "t", "-o", "beginning", "-e").stdout.count("\n"), 20 + 6 * 10)


@test
def what_is_no_id_is_refused_by_the_topic(folder):
    b = Broker(folder / "d")
    topic(b, "t")
    for header in ("guid=short", "guid=" + "x" * 17):
        r = produce(b, "-t", "t", "-H", header, stdin="v\n")
        equal((r.returncode, r.stdout), (1, ""))
        holds(r.stderr, "record 1", "INVALID_RECORD", "16 bytes")
    equal(produce(b, "-t", "t", "-H", "guid=" + "x" * 16, stdin="v\n").returncode, 0)
    r = produce(b, "-t", "t", "-H", "guid=" + "x" * 16, "-H", "guid=" + "y" * 16, stdin="v\n")
    equal(r.returncode, 1)
    holds(r.stderr, "INVALID_RECORD")
    equal(json.loads(get(b, "t", (b"x" * 16).hex(), "--json").stdout)["record"]["value"], "v")


@test
def a_topic_or_a_cluster_without_dedup_says_so(folder):
    b = Broker(folder / "d")
    equal(kc(b, "topic", "create", "plain").returncode, 0)
    for _ in range(2):
        r = produce(b, "-t", "plain", "--guid", ID, stdin="v\n")
        equal(r.returncode, 0, r.stderr)
        equal(r.stderr.count("topic plain does not dedup by id"), 1, r.stderr)
        holds(r.stderr, "warning", "message.guid.dedup=true")
    equal(kc(b, "consume", "-t", "plain", "-o", "beginning", "-e").stdout, "v\nv\n")
    j = json.loads(kc(b, "consume", "-t", "plain", "-o", "beginning", "-c", 1, "--json").stdout)
    equal(j["guid"], ID, "the id travels all the same")
    for r in (get(b, "plain", ID), kc(b, "guid", "stats", "-t", "plain")):
        equal((r.returncode, r.stdout), (1, ""))
        holds(r.stderr, "topic plain", "kc topic alter plain --config message.guid.dedup=true")
    r = get(b, "missing", ID)
    equal((r.returncode, r.stdout), (1, ""))
    holds(r.stderr, "missing", "UNKNOWN_TOPIC_OR_PARTITION", "kc topic create")
    # Switched on, what was there is found too.
    equal(kc(b, "topic", "alter", "plain", "--config", "message.guid.dedup=true").returncode, 0)
    eventually("the index has read the log", lambda: get(b, "plain", ID).returncode == 0)
    equal(json.loads(get(b, "plain", ID, "--json").stdout)["offset"], 0)
    holds(produce(b, "-t", "plain", "--guid", ID, stdin="v\n").stderr, "was stored before")


@test
def a_deleted_record_is_forgotten_with_its_id(folder):
    b = Broker(folder / "d")
    topic(b, "t")
    equal(produce(b, "-t", "t", "--guid", ID, stdin="v\n").returncode, 0)
    equal(get(b, "t", ID).returncode, 0)
    equal(kc(b, "topic", "delete", "t").returncode, 0)
    topic(b, "t")
    equal(get(b, "t", ID).returncode, 1)
    equal(produce(b, "-t", "t", "--guid", ID, stdin="v\n").stderr, "")


def copies(b, name):
    """{value: [(partition, offset), …]}, in order."""
    seen = {}
    for line in kc(b, "consume", "-t", name, "-o", "beginning", "-e", "-f", "%s %p %o\\n").stdout.splitlines():
        value, partition, offset = line.split()
        seen.setdefault(value, []).append((int(partition), int(offset)))
    return {v: sorted(at) for v, at in seen.items()}


@test
def settings_that_contradict_each_other_are_refused_with_their_numbers(folder):
    b = Broker(folder / "d")
    topic(b, "t")
    equal(kc(b, "topic", "create", "own", "--config", "message.guid.dedup=true", "--config", "retention.ms=7200000").returncode, 0)
    for args in (["topic", "create", "x", "--config", "message.guid.dedup=true", "--config", "retention.ms=60000"], ["topic", "alter", "t", "--config", "retention.ms=60000"],
                 ["config", "alter", "broker", "", "--config", "log.retention.ms=60000"], ["config", "alter", "broker", "0", "--config", "log.retention.ms=60000"]):
        r = kc(b, *args)
        equal((r.returncode, r.stdout), (1, ""), " ".join(args))
        holds(r.stderr, "message.guid.window.ms=3600000", "more than retention.ms=60000", "INVALID_CONFIG")
    holds(r.stderr, "of 1 deduped topic: t")
    equal("own" in r.stderr, False, r.stderr)
    equal(kc(b, "config", "alter", "broker", "", "--config", "log.retention.ms=3600000").returncode, 0)


@test
def a_topic_that_is_switched_off_and_on_again(folder):
    b = Broker(folder / "d")
    topic(b, "t")
    lines = "".join(f"{uuid.uuid4()} v{i}\n" for i in range(50))

    def send():
        r = produce(b, "-t", "t", "--guid-from", "field", "--reports", stdin=lines)
        equal(r.returncode, 0, r.stderr)
        return [(x["offset"], x.get("duplicate")) for x in map(json.loads, r.stdout.splitlines())], r.stderr
    equal(send()[0], [(i, False) for i in range(50)])
    equal(kc(b, "topic", "alter", "t", "--config", "message.guid.dedup=false").returncode, 0)
    told, said = send()
    equal(told, [(50 + i, None) for i in range(50)], "stored again while nobody looks")
    holds(said, "topic t does not dedup by id")
    equal(kc(b, "topic", "alter", "t", "--config", "message.guid.dedup=true").returncode, 0)
    told, said = send()
    equal(told, [(i, True) for i in range(50)], "the first copies, of before it was switched off")
    holds(said, "50 of 50 records were stored before")
    equal({v: len(at) for v, at in copies(b, "t").items()}, {f"v{i}": 2 for i in range(50)})


@test
def more_partitions_are_said_to_be_what_they_are(folder):
    b = Broker(folder / "d")
    topic(b, "t", "--partitions", 2)
    lines = "".join(f"{uuid.uuid4()} v{i}\n" for i in range(200))
    for _ in range(2):
        equal(produce(b, "-t", "t", "--guid-from", "field", stdin=lines).returncode, 0)
    before = copies(b, "t")
    equal({len(at) for at in before.values()}, {1})
    equal(kc(b, "topic", "alter", "t", "--partitions", 5).returncode, 0)
    eventually("the warning", lambda: "topic t gets 5 partitions instead of 2: each dedups its own records" in b.text())
    for _ in range(2):
        equal(produce(b, "-t", "t", "--guid-from", "field", stdin=lines).returncode, 0)
    after = copies(b, "t")
    equal(max(len(at) for at in after.values()), 2, "twice, where the id has another partition now")
    equal(all(set(before[v]) <= set(at) and len({p for p, _ in at}) == len(at) for v, at in after.items()), True, "never twice in one partition")


main()
