#!/usr/bin/env python3
"""The metadata log and its snapshots: Apache Kafka's decoder reads what kbroker wrote, and each of the two takes over the other's folder.

    test_metadata.py [--quick]

A replay here of the decoded records, written from KIP-631 alone, must give the topics that kbroker was told to have. Then Apache Kafka
starts on kbroker's folder and kbroker on what Apache Kafka made of it: topics, ids, partitions, configurations and records stay.
"""
import argparse
import json
import re

from judge import servers, tally, tools, wire

TOPICS = 14
SMALL = {"metadata.log.max.record.bytes.between.snapshots": 1500, "metadata.log.segment.bytes": 2048, "node.id": 1}


def topics(boot, *args):
    return tools.kafka("kafka-topics", "--bootstrap-server", boot, *args).decode()


def change(boot):
    """Topics made, grown, configured and deleted; what must be left: {name: (partitions, retention)}."""
    left = {}
    with wire.Wire(boot) as w:
        for i in range(TOPICS):
            w.create(f"meta-{i}", 1 + i % 3, {"retention.ms": str(10**9 + i)})
            left[f"meta-{i}"] = (1 + i % 3, str(10**9 + i))
    topics(boot, "--alter", "--topic", "meta-1", "--partitions", "5")
    left["meta-1"] = (5, left["meta-1"][1])
    topics(boot, "--delete", "--topic", "meta-1[0-3]")
    for i in range(10, 14):
        del left[f"meta-{i}"]
    return left


def describe(boot):
    """{name: (id, partitions, retention)} as Apache Kafka's tool sees it."""
    said = topics(boot, "--describe")
    found = {}
    for name, uuid, n, configs in re.findall(r"Topic: (\S+)\s+TopicId: (\S+)\s+PartitionCount: (\d+)\s+ReplicationFactor: 1\s+Configs: (\S*)", said):
        retention = re.search(r"retention\.ms=(\d+)", configs)
        if not name.startswith("__"):
            found[name] = (uuid, int(n), retention and retention[1])
    return found


def same(found, left):
    have = {k: v[1:] for k, v in found.items()}
    return [] if have == left else [f"there are {have}, not {left}"]


def decoded(path):
    """The records of a log or snapshot, through Apache Kafka's decoder: (offset, type, data)."""
    text = tools.dump([path], "--cluster-metadata-decoder")
    bad = tools.complaints(text)
    if bad:
        raise tools.ToolError(f"{path.name}: {bad[0]}")
    out = []
    for offset, payload in re.findall(r"^\| offset: (\d+) .*? payload: (\{.*\})$", text, re.M):
        r = json.loads(payload)
        out.append((int(offset), r["type"], r["data"]))
    return out, text


def replay(sources):
    """Topics by KIP-631: of the newest snapshot, then the log's records from its end on."""
    ids, parts, configs, epochs = {}, {}, {}, {}
    for rows in sources:
        for _, kind, d in rows:
            if kind == "TOPIC_RECORD":
                ids[d["topicId"]] = d["name"]
                parts[d["topicId"]] = set()
            elif kind == "PARTITION_RECORD":
                parts[d["topicId"]].add(d["partitionId"])
                epochs[d["topicId"], d["partitionId"]] = d["leaderEpoch"]
            elif kind == "PARTITION_CHANGE_RECORD" and "leader" in d:
                epochs[d["topicId"], d["partitionId"]] += 1
            elif kind == "CONFIG_RECORD" and d["resourceType"] == 2:
                configs.setdefault(d["resourceName"], {})[d["name"]] = d["value"]
            elif kind == "REMOVE_TOPIC_RECORD":
                configs.pop(ids[d["topicId"]], None)
                del ids[d["topicId"]], parts[d["topicId"]]
    return {n: (u, len(parts[u]), configs.get(n, {}).get("retention.ms")) for u, n in ids.items()}, epochs


def judge_files(data, left, starts):
    """Decoder and replay over the files of a stopped kbroker that was started `starts` times."""
    folder = data / "__cluster_metadata-0"
    snapshots = sorted(folder.glob("*.checkpoint"))
    logs = sorted(folder.glob("*.log"))
    bad = [] if len(snapshots) == 2 else [f"{len(snapshots)} snapshots, not 2"]
    if not bad and len(logs) < 2:
        bad.append("the log was to roll")
    rows = []
    for f in logs:
        got, text = decoded(f)
        rows += got
        if re.search(r"isControl: true", text) and "LeaderChange" not in text:
            bad.append(f"{f.name}: a control batch that is no leader change")
    for s in snapshots:
        got, text = decoded(s)
        end = int(s.name[:20])
        if "SnapshotHeader" not in text or "SnapshotFooter" not in text:
            bad.append(f"{s.name}: no header or footer")
        found, _ = replay([got, [r for r in rows if r[0] >= end]])
        bad += [f"{s.name} and the log behind it: {x}" for x in same(found, left)]
    state = json.loads((folder / "quorum-state").read_text())
    if state["leaderEpoch"] != starts or state["data_version"] != 0:
        bad.append(f"quorum-state after {starts} starts: {state}")
    properties = (data / "meta.properties").read_text()
    if not re.search(r"^version=1$", properties, re.M) or not re.search(r"^directory\.id=\S{22}$", properties, re.M):
        bad.append(f"meta.properties: {properties!r}")
    return bad


def takes_over(server, before, left, what):
    """The same topics with the same ids, after another broker's start."""
    found = describe(server.boot)
    bad = same(found, left)
    moved = [n for n in found if n in before and found[n][0] != before[n][0]]
    return bad + ([f"{what}: other ids for {moved}"] if moved else [])


def produce_some(boot, n, fill):
    tools.kcat("-P", "-b", boot, "-t", "meta-0", "-p", "0", stdin="".join(f"{fill}{i}\n" for i in range(n)).encode())


def read_all(boot, want):
    got = tools.kcat("-C", "-b", boot, "-t", "meta-0", "-p", "0", "-o", "beginning", "-e", "-q").decode().split()
    return [] if got == want else [f"{len(got)} records, not {len(want)}: {got[:3]}"]


def run():
    ap = argparse.ArgumentParser()
    ap.add_argument("--quick", action="store_true")
    a = ap.parse_args()
    t = tally.Tally("the metadata log: kbroker's, Apache Kafka's, and each on the other's")
    own = servers.Kbroker(SMALL)
    own.start()
    left = change(own.boot)
    before = describe(own.boot)
    t.check("topics as asked for", same(before, left))
    own.kill9()
    own.start()
    t.check("after kill -9", takes_over(own, before, left, "kill -9"))
    own.stop()
    own.start()
    t.check("after a clean stop", takes_over(own, before, left, "clean stop"))
    produce_some(own.boot, 10, "own")
    t.check("SIGTERM", [] if own.stop() == 0 else ["exit code is not 0"])
    t.attempt("kafka-dump-log --cluster-metadata-decoder, and a replay of what it shows", judge_files, own.data, left, 3)
    if a.quick:
        return t.close()
    want = [f"own{i}" for i in range(10)]
    kafka = servers.Kafka({"log.dirs": own.data})
    kafka.data = own.data
    kafka.start()
    t.attempt("Apache Kafka on kbroker's folder", takes_over, kafka, before, left, "Apache Kafka")
    t.attempt("… reads its records", read_all, kafka.boot, want)
    produce_some(kafka.boot, 10, "kafka")
    want += [f"kafka{i}" for i in range(10)]
    topics(kafka.boot, "--create", "--topic", "meta-k", "--partitions", "2", "--config", "retention.ms=5000000000")
    left["meta-k"] = (2, "5000000000")
    kafka.stop()
    own.start()
    t.attempt("kbroker on Apache Kafka's folder", takes_over, own, before, left, "kbroker")
    t.attempt("… reads its records", read_all, own.boot, want)
    produce_some(own.boot, 1, "again")
    t.attempt("… and serves on", read_all, own.boot, want + ["again0"])
    own.stop()
    return t.close()


if __name__ == "__main__":
    tally.main(run)
