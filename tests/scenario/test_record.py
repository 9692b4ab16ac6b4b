"""kbroker run --record and kbroker print: what a foreign client (kcat) sent and got is in the recording, line for line; batches from files too; several nodes
share a file; damage, full disks and files that are none."""
import json
import os
import resource
import shutil
import signal
import subprocess

import scene
from scene import KBROKER, KC, Broker, equal, eventually, holds, kc, line_of, main, run, test
from scene_cluster import Cluster

LIMIT = 64 << 20


def printed(path, *options, rc=0):
    r = run(KBROKER, "print", path, *options)
    equal(r.returncode, rc, r.stderr)
    return [json.loads(line) for line in r.stdout.splitlines()], r.stderr


def records(line):
    """Of a Produce request or a Fetch response: (topic, partition, records)."""
    b = line["body"]
    for t in b.get("topicData") or b.get("responses") or []:
        for p in t.get("partitionData") or t.get("partitions"):
            if p["records"] is not None:
                yield t.get("name") or t.get("topic"), p.get("index", p.get("partitionIndex")), p["records"]


def only_pairs(lines):
    """Each response has its request before it, on its connection; each request but the last of a connection that was closed has its response."""
    asked = {}
    for x in lines:
        key = (x["node"], x["connection"], x["correlation_id"])
        if x["kind"] == "request":
            assert key not in asked, x
            asked[key] = x
        else:
            q = asked.pop(key)
            equal((q["api"], q["version"], q["client_id"], q["peer"]), (x["api"], x["version"], x["client_id"], x["peer"]))
            assert x["at_us"] >= q["at_us"] and x["took_us"] >= 0, x
    return {k: x for k, x in asked.items() if x["api"] != "Fetch"}  # clients leave amidst a fetch


@test
def what_kcat_does_is_in_the_recording(folder):
    one, two = "one" * 200, "two" * 200
    b = Broker(folder / "d", "--record", folder / "r")
    equal(kc(b, "topic", "create", "t").returncode, 0)
    equal(run("kcat", "-P", "-b", b.address, "-t", "t", "-K", ":", "-z", "gzip", "-H", "h=1", stdin=f"k1:{one}\nk2:{two}\n").returncode, 0)
    equal(run("kcat", "-C", "-b", b.address, "-t", "t", "-e", "-q").stdout, f"{one}\n{two}\n")
    equal(b.stop(), 0)
    equal(os.stat(folder / "r").st_mode & 0o777, 0o600)
    lines, err = printed(folder / "r", "--records", "--bytes", "1000")
    equal(err, "")
    equal(only_pairs(lines), {})
    kcat = [x for x in lines if x["client_id"] == "rdkafka"]
    assert all(x["peer"].startswith("127.0.0.1:") and "error" not in x and "trailing" not in x for x in kcat)
    sent = [r for x in kcat if x["api"] == "Produce" and x["kind"] == "request" for r in records(x)]
    got = [r for x in kcat if x["api"] == "Fetch" and x["kind"] == "response" for r in records(x) if r[2]["count"]]
    equal([(t, p, r["count"], r["batches"][0]["codec"]) for t, p, r in sent], [("t", 0, 2, "gzip")])
    for values in (sent[0][2]["batches"][0]["values"], got[0][2]["batches"][0]["values"]):
        equal([(v["key"], v["value"], v["headers"]) for v in values], [("k1", one, [{"key": "h", "value": "1"}]), ("k2", two, [{"key": "h", "value": "1"}])])
    equal([p["baseOffset"] for x in kcat if x["api"] == "Produce" and x["kind"] == "response" for t in x["body"]["responses"] for p in t["partitionResponses"]], [0])
    some, _ = printed(folder / "r", "--api", "Produce", "--api", "Fetch", "--node", "0")
    equal({x["api"] for x in some}, {"Produce", "Fetch"})
    assert "values" not in json.dumps(some)
    equal(printed(folder / "r", "--node", "1"), ([], ""))


@test
def answers_that_go_out_from_files_are_read_for_the_recording(folder):
    values = [f"{i:06d}".ljust(1000, "x") for i in range(12000)]
    b = Broker(folder / "d", "--record", folder / "r")
    equal(kc(b, "topic", "create", "t").returncode, 0)
    equal(kc(b, "produce", "-t", "t", stdin="".join(v + "\n" for v in values)).returncode, 0)
    equal(kc(b, "consume", "-t", "t", "-o", "beginning", "-e", "--set", "fetch.max.bytes=50000000", "--set", "max.partition.fetch.bytes=50000000").stdout.split(), values)
    equal(b.stop(), 0)
    shutil.rmtree(folder / "d")  # the recording is whole in itself
    lines, err = printed(folder / "r", "--api", "Fetch", "--records", "--bytes", "2000")
    equal(err, "")
    seen, missing = {}, 0
    for x in lines:
        if x["kind"] == "response":
            missing += x.get("not_recorded", 0)
            for _, _, r in records(x):
                for batch in r["batches"]:
                    assert "crc" not in batch and "unreadable" not in batch, batch
                    seen.update((v["offset"], v["value"]) for v in batch["values"])
    assert missing > 0, "an answer of more than 8 MB was to be among them"
    assert len(seen) > 7000 and all(values[o] == v for o, v in seen.items()), len(seen)


@test
def nodes_share_a_file_and_print_follows_it(folder):
    nodes = [Broker(folder / f"d{i}", "--record", folder / "r", "--set", f"node.id={i}") for i in range(3)]
    p = subprocess.Popen([KBROKER, "print", folder / "r", "--follow", "--api", "CreateTopics"], stdout=subprocess.PIPE)
    scene._children.append(p)
    for i, b in enumerate(nodes):
        equal(kc(b, "topic", "create", f"t{i}").returncode, 0)
    lines = [json.loads(line_of(p)) for _ in range(6)]  # as they come
    equal([(x["node"], x["kind"], x["body"]["topics"][0]["name"]) for x in lines], [(i, k, f"t{i}") for i in range(3) for k in ("request", "response")])
    p.send_signal(signal.SIGINT)
    p.wait(30)
    writers = [subprocess.Popen([KC, "bench", "produce", "-b", b.address, "-t", "load", "--count", "20000", "--size", "100"], stdout=subprocess.DEVNULL) for b in nodes]
    equal([w.wait(120) for w in writers], [0, 0, 0])
    ends = [json.loads(kc(b, "topic", "describe", "load", "--json").stdout)["partitions"][0]["leo"] for b in nodes]
    assert min(ends) >= 20000
    equal([b.stop() for b in nodes], [0, 0, 0])
    lines, err = printed(folder / "r")
    equal((err, only_pairs(lines)), ("", {}))
    for i in range(3):
        equal(sum(r["count"] for x in lines if x["node"] == i and x["api"] == "Produce" and x["kind"] == "request" for _, _, r in records(x)), ends[i], f"node {i}")


@test
def a_cluster_records_what_its_nodes_say_to_each_other(folder):
    c = Cluster(folder / "c", 3, "--record", folder / "r")
    c.create("t", "0:1:2")
    c.until("t", "all in sync", isr=[0, 1, 2])
    equal(c.produce("t", "a", "b"), "")
    equal(c.stop(), 0)
    lines, err = printed(folder / "r")
    equal(err, "")
    equal({x["node"] for x in lines}, {0, 1, 2})
    assert not [x for x in lines if "error" in x or "trailing" in x]
    leader = next(x["node"] for x in lines if x["api"] == "Produce")
    followers = {x["client_id"] for x in lines if x["node"] == leader and x["kind"] == "response" and x["api"] == "Fetch" and any(r["count"] == 2 for _, _, r in records(x))}
    equal(followers, {f"kbroker-{i}" for i in range(3) if i != leader})


@test
def damage_is_told_with_its_place_and_the_rest_printed(folder):
    b = Broker(folder / "d", "--record", folder / "r")
    for i in range(3):
        equal(kc(b, "topic", "create", f"t{i}").returncode, 0)
    b.p.kill()  # nothing is held back
    b.p.wait()
    whole, _ = printed(folder / "r")
    data = (folder / "r").read_bytes()
    size = 12 + int.from_bytes(data[4:8], "big")  # of the first entry
    for name, damaged, place in (("cut", data[:-5], None), ("front", b"x" * 100 + data, "100 bytes at byte 0 "), ("bit", data[:40] + bytes([data[40] ^ 4]) + data[41:], f"{size} bytes at byte 0 "),
                                 ("hole", data[:size] + bytes(5000) + data[size:], f"5000 bytes at byte {size} "), ("text", b"no recording at all\n", "20 bytes at byte 0 ")):
        (folder / name).write_bytes(damaged)
        lines, err = printed(folder / name, rc=1)
        holds(err, "are no sound entry", place or "it is cut off")
        equal(len(err.splitlines()), 1, err)
        equal(lines, {"cut": whole[:-1], "bit": whole[1:], "text": []}.get(name, whole), name)
    (folder / "empty").touch()
    equal(printed(folder / "empty"), ([], ""))
    r = run(KBROKER, "print", "-", stdin=data)
    equal((r.returncode, len(r.stdout.splitlines())), (0, len(whole)))
    for args, words in (([], ["FILE"]), (["a", "b"], ["only one file"]), (["r", "--api", "Produse"], ["Produce"]), (["r", "--node", "x"], ["number"]), (["r", "--foo"], ["--foo"]),
                        (["r", "--bytes", "-1"], ["number"]), (["r", "--api"], ["--api"])):
        r = run(KBROKER, "print", *args, cwd=folder)
        equal((r.returncode, r.stdout), (2, ""), args)
        holds(r.stderr, *words)
    for path, word in (("none", "No such file"), (folder, "Is a directory")):
        r = run(KBROKER, "print", path)
        equal(r.returncode, 1)
        holds(r.stderr, str(path), word)
    if os.path.exists("/dev/full"):
        with open("/dev/full", "w") as full:
            r = subprocess.run([KBROKER, "print", folder / "r"], stdout=full, stderr=subprocess.PIPE, timeout=60)
        equal(r.returncode, 1)
        holds(r.stderr.decode(), "No space left")


@test
def a_recording_that_cannot_be_written_stops_nobody(folder):
    (folder / "text").write_text("mine\n")
    for path, words in ((folder / "none" / "r", ["No such file"]), (folder, ["directory"]), (folder / "text", ["no recording", "left alone"]), ("/dev/null", ["is no file"])):
        b = Broker(folder / "d", "--record", path)
        equal(kc(b, "topic", "list").returncode, 0)
        holds(b.text(), f"--record {path}", "without a recording", *words)
        equal(b.stop(), 0)
    equal((folder / "text").read_text(), "mine\n")
    # A limit of a file's size is a full disk to this file alone: it begins far up, behind a hole.
    b = Broker(folder / "e", "--record", folder / "r")
    equal(kc(b, "topic", "create", "t").returncode, 0)
    equal(b.stop(), 0)
    old = len(printed(folder / "r")[0])
    os.truncate(folder / "r", LIMIT - 20000)
    b = Broker(folder / "e", "--record", folder / "r", prefix=["prlimit", f"--fsize={LIMIT}:unlimited"])
    for _ in range(12):
        equal(kc(b, "topic", "describe", "t").returncode, 0)
    equal(b.text().count("could not be recorded"), 1, b.text())
    lines, _ = printed(folder / "r", rc=1)
    assert len(lines) > old + 5, (old, len(lines))
    resource.prlimit(b.p.pid, resource.RLIMIT_FSIZE, (2 * LIMIT, resource.RLIM_INFINITY))  # room again
    equal(kc(b, "topic", "describe", "t").returncode, 0)
    holds(b.text(), "goes on", "frames are missing")
    assert len(printed(folder / "r", rc=1)[0]) > len(lines)
    equal(b.stop(), 0)


if __name__ == "__main__":
    main()
