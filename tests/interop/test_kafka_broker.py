#!/usr/bin/env python3
"""Clients against Apache Kafka: libkclient both ways, every codec, acks level and size, checked record by record.

    test_kafka_broker.py [--quick] [--peers all|kclient|NAME,...]

Default: libkclient produces, and Java, librdkafka and libkclient read; then each of those produces and libkclient reads.
--peers outside: the judges against each other, to prove the judges (libkclient is not needed).
"""
import argparse

from judge import cache, cli, consuming, guids, matrix, peers, servers, tally


def run():
    ap = argparse.ArgumentParser()
    ap.add_argument("--quick", action="store_true")
    ap.add_argument("--peers", default="kclient", help="kclient, outside, or names separated by commas")
    a = ap.parse_args()
    t = tally.Tally(f"Apache Kafka {cache.KAFKA_VERSION} with {a.peers}")
    folder = servers.temp_folder("matrix")
    with servers.Kafka(consuming.BROKER_PROPS) as kafka:
        if a.peers == "kclient":
            ours = [c(kafka.boot) for c in peers.OURS]
            others = [peers.Java(kafka.boot), peers.RdkNew(kafka.boot)]
            matrix.run(t, kafka, [p for p in ours if p.produces], others + [p for p in ours if p.consumes], a.quick, folder)
            matrix.run(t, kafka, others, [p for p in ours if p.consumes], a.quick, folder)
            for codec in ("none", "zstd") if a.quick else peers.CODECS:
                t.attempt(f"kc {codec} with {kafka.name}", cli.kc_round, kafka.boot, codec)
            t.attempt(f"enable.guid with {kafka.name}: the id is read as a header", guids.header_is_read, kafka.boot, "ids", folder)
            t.attempt(f"--guid-from with {kafka.name}: said once that nobody looks", guids.said_once, kafka.boot, "ids-again", "no LookupGuid")
            consuming.run(t, kafka, a.quick, folder)
        else:
            names = None if a.peers == "outside" else a.peers.split(",")
            chosen = [c(kafka.boot) for c in peers.OUTSIDE + peers.OURS if (c.name in names if names else c in peers.OUTSIDE)]
            matrix.run(t, kafka, [p for p in chosen if p.produces], [p for p in chosen if p.consumes], a.quick, folder)
    return t.close()


if __name__ == "__main__":
    tally.main(run)
