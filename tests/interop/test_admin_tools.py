#!/usr/bin/env python3
"""Apache Kafka's administration tools against kbroker: what each says must be what was asked for.

    test_admin_tools.py [--quick] [--broker kbroker|kafka]

The tools are slow to start (a JVM each), so --quick keeps one call a tool.
"""
import argparse
import json
import re

from judge import peers, records, servers, tally, tools, wire


def text(tool, boot, *args, **kw):
    return tools.kafka(tool, "--bootstrap-server", boot, *args, **kw).decode()


def create_describe(boot):
    text("kafka-topics", boot, "--create", "--topic", "adm", "--partitions", "2", "--replication-factor", "1",
         "--config", "retention.ms=3600000", "--config", "cleanup.policy=delete")
    said = text("kafka-topics", boot, "--describe", "--topic", "adm")
    bad = []
    if not re.search(r"PartitionCount: 2\s+ReplicationFactor: 1\s+Configs: .*retention\.ms=3600000", said):
        bad.append(f"describe says {said!r}")
    if len(re.findall(r"Topic: adm\s+Partition: [01]\s+Leader: \d+\s+Replicas: \d+\s+Isr: \d+", said)) != 2:
        bad.append(f"describe shows other partitions: {said!r}")
    return bad


def list_and_create_again(boot):
    bad = [] if "adm" in text("kafka-topics", boot, "--list").split() else ["--list does not show the topic"]
    said = tools.kafka("kafka-topics", "--bootstrap-server", boot, "--create", "--topic", "adm", "--partitions", "1",
                       check=False).decode()
    return bad if "TopicExistsException" in said else bad + [f"a second creation says {said!r}"]


def refusals(boot):
    bad = []
    for what, args, want in (
            ("a topic name with a space", ("--create", "--topic", "no good"), "illegal|invalid|InvalidTopic"),
            ("replication factor 3 on one node", ("--create", "--topic", "rf3", "--replication-factor", "3"), "[Rr]eplication factor"),
            ("a bad config value", ("--create", "--topic", "badcfg", "--config", "retention.ms=soon"), "retention.ms"),
            ("describe of an absent topic", ("--describe", "--topic", "absent"), "does not exist")):
        said = tools.kafka("kafka-topics", "--bootstrap-server", boot, *args, check=False).decode()
        if not re.search(want, said):
            bad.append(f"{what}: {said[:300]!r}")
    return bad


def more_partitions(boot):
    text("kafka-topics", boot, "--alter", "--topic", "adm", "--partitions", "4")
    with wire.Wire(boot) as w:
        n = len(w.partitions("adm"))
    said = tools.kafka("kafka-topics", "--bootstrap-server", boot, "--alter", "--topic", "adm", "--partitions", "3", check=False).decode()
    bad = [] if n == 4 else [f"{n} partitions after --alter --partitions 4"]
    return bad if re.search(r"4|[Ii]nvalid", said) and "xception" in said else bad + [f"fewer partitions: {said[:300]!r}"]


def configs(boot):
    entity = ("--entity-type", "topics", "--entity-name", "adm")
    text("kafka-configs", boot, "--alter", *entity, "--add-config", "segment.bytes=2097152,retention.bytes=104857600")
    said = text("kafka-configs", boot, "--describe", *entity)
    bad = [f"describe lacks {w}: {said!r}" for w in ("segment.bytes=2097152", "retention.bytes=104857600") if w not in said]
    text("kafka-configs", boot, "--alter", *entity, "--delete-config", "retention.bytes")
    said = text("kafka-configs", boot, "--describe", *entity)
    if "retention.bytes=104857600" in said or "segment.bytes=2097152" not in said:
        bad.append(f"after --delete-config retention.bytes: {said!r}")
    said = text("kafka-configs", boot, "--describe", "--all", *entity)
    bad += [f"describe --all lacks {w}" for w in ("segment.bytes=2097152", "max.message.bytes=", "cleanup.policy=") if w not in said]
    said = tools.kafka("kafka-configs", "--bootstrap-server", boot, "--alter", *entity, "--add-config", "segment.bytes=-5", check=False).decode()
    return bad if "segment.bytes" in said and "xception" in said else bad + [f"a bad value is answered {said[:300]!r}"]


def broker_configs(boot):
    with wire.Wire(boot) as w:
        node = w.brokers()[0][0]
    said = text("kafka-configs", boot, "--describe", "--all", "--entity-type", "brokers", "--entity-name", str(node))
    return [f"no {w} in {said[:300]!r}" for w in ("log.dirs=", "num.partitions=", "auto.create.topics.enable=") if w not in said]


def fill(boot, folder):
    rs = records.many(4, 4000)
    records.save(rs, folder / "set.jsonl")
    peers.RdkNew(boot).job(op="produce", topic="adm", file=str(folder / "set.jsonl"), out=str(folder / "reports"), codec="none",
                           acks=-1, idempotence=True)


def offsets(boot):
    bad = []
    for args, want in (((), 1000), (("--time", "earliest"), 0), (("--time", "latest"), 1000),
                       (("--time", str(records.NOW + 2000)), 500), (("--time", "max-timestamp"), 999)):
        said = text("kafka-get-offsets", boot, "--topic", "adm", *args).split()
        if said != [f"adm:{p}:{want}" for p in range(4)]:
            bad.append(f"kafka-get-offsets {' '.join(args)} says {said}, not {want} each")
    return bad


def log_dirs(boot):
    said = text("kafka-log-dirs", boot, "--describe", "--topic-list", "adm")
    d = json.loads(next(line for line in said.splitlines() if line.startswith("{")))
    parts = [p for b in d["brokers"] for ld in b["logDirs"] for p in ld["partitions"]]
    bad = [] if sorted(p["partition"] for p in parts) == [f"adm-{i}" for i in range(4)] else [f"partitions {parts}"]
    bad += [f"size {p}" for p in parts if p["size"] < 1000 * 10]
    return bad + [f"error {ld['error']}" for b in d["brokers"] for ld in b["logDirs"] if ld["error"]]


def delete_records(boot, folder):
    plan = folder / "delete.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": "adm", "partition": 0, "offset": 600},
                                                             {"topic": "adm", "partition": 1, "offset": -1}]}))
    said = text("kafka-delete-records", boot, "--offset-json-file", plan)
    with wire.Wire(boot) as w:
        starts, ends = [w.offset("adm", p, -2) for p in range(4)], w.ends("adm", 4)
    if starts != [600, 1000, 0, 0] or ends != [1000] * 4:
        return [f"log starts {starts}, ends {ends}; the tool said {said!r}"]
    return []


def api_versions(boot):
    said = text("kafka-broker-api-versions", boot)
    names = dict(re.findall(r"^\s+(\w+)\((?:\d+)\): (\S+)", said, re.M))
    need = ("Produce", "Fetch", "ListOffsets", "Metadata", "ApiVersions", "CreateTopics", "DeleteTopics", "InitProducerId",
            "DescribeConfigs", "IncrementalAlterConfigs", "CreatePartitions", "DeleteRecords", "DescribeCluster", "DescribeLogDirs")
    return [f"{n}: {names.get(n)}" for n in need if names.get(n) in (None, "UNSUPPORTED")]


def cluster_id(boot):
    said = tools.kafka("kafka-cluster", "cluster-id", "--bootstrap-server", boot).decode()
    return [] if re.search(r"Cluster ID: \S{22}", said) else [f"says {said!r}"]


def delete_topic(boot):
    text("kafka-topics", boot, "--delete", "--topic", "adm")
    left = text("kafka-topics", boot, "--list").split()
    return [f"--list still shows {left}"] if "adm" in left else []


def run():
    ap = argparse.ArgumentParser()
    ap.add_argument("--quick", action="store_true")
    ap.add_argument("--broker", choices=("kbroker", "kafka"), default="kbroker")
    a = ap.parse_args()
    t = tally.Tally(f"Apache Kafka's admin tools with {a.broker}")
    folder = servers.temp_folder("admin")
    with servers.server(a.broker) as s:
        t.attempt("kafka-topics --create, --describe", create_describe, s.boot)
        if not a.quick:
            t.attempt("kafka-topics --list, a second creation", list_and_create_again, s.boot)
            t.attempt("kafka-topics: refusals say why", refusals, s.boot)
            t.attempt("kafka-configs brokers", broker_configs, s.boot)
            t.attempt("kafka-cluster cluster-id", cluster_id, s.boot)
        t.attempt("kafka-topics --alter --partitions", more_partitions, s.boot)
        t.attempt("kafka-configs topics", configs, s.boot)
        t.attempt("records to look at", fill, s.boot, folder)
        t.attempt("kafka-get-offsets", offsets, s.boot)
        t.attempt("kafka-log-dirs", log_dirs, s.boot)
        t.attempt("kafka-delete-records", delete_records, s.boot, folder)
        t.attempt("kafka-broker-api-versions", api_versions, s.boot)
        t.attempt("kafka-topics --delete", delete_topic, s.boot)
    return t.close()


if __name__ == "__main__":
    tally.main(run)
