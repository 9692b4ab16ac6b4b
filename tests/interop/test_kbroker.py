#!/usr/bin/env python3
"""Every peer against kbroker, both ways, record by record; then Apache Kafka's own tools judge the files it wrote.

    test_kbroker.py [--quick] [--broker kbroker|kafka]

--broker kafka runs the same against Apache Kafka (without libkclient and without the old message formats, which it no
longer serves): the proof that the judges are right.
"""
import argparse

from judge import cli, matrix, peers, segments, servers, tally, tools

# Small segments and a dense index, so that rolls and index entries are many; the record limit is that of servers.py.
PROPS = {"log.segment.bytes": 12 << 20, "log.index.interval.bytes": 4096}


def spoilers():
    """Faults that the file judges must see: one bit of a record, of an index, of a time index."""
    def flip(pattern, at):
        def spoil(folder):
            f = max(folder.glob(pattern), key=lambda x: x.stat().st_size)
            b = bytearray(f.read_bytes())
            b[at if len(b) > at else len(b) // 2] ^= 1
            f.write_bytes(b)
        return spoil
    return {"a bit of a record": flip("*.log", 100), "a bit of an index": flip("*.index", 7),
            "a bit of a time index": flip("*.timeindex", 5)}


def files(t, server, scratch):
    folders = [d for d in tools.partition_folders(server.data) if d.name != "__cluster_metadata-0"]
    t.attempt(f"kafka-dump-log on the {len(folders)} partitions of {server.name}", tools.dump_log_problems, folders)
    t.attempt(f"batches and indexes of {server.name} agree", segments.problems, folders)
    t.attempt(f"kafka-dump-log on the metadata log of {server.name}", tools.metadata_log_problems, server.data)
    victim = max(folders, key=lambda d: max(f.stat().st_size for f in d.glob("*.timeindex")))
    for what, spoil in spoilers().items():
        copy = tools.spoiled_copy(victim, scratch / victim.name, spoil)
        t.attempt(f"control: the file judges see {what}",
                  lambda copy=copy: None if tools.dump_log_problems([copy]) or segments.problems([copy]) else "it saw nothing")


def run():
    ap = argparse.ArgumentParser()
    ap.add_argument("--quick", action="store_true")
    ap.add_argument("--broker", choices=("kbroker", "kafka"), default="kbroker")
    a = ap.parse_args()
    t = tally.Tally(f"all peers with {a.broker}")
    folder = servers.temp_folder("matrix")
    own = a.broker == "kbroker"
    with servers.server(a.broker, PROPS) as s:
        made = [c(s.boot) for c in peers.OUTSIDE + (peers.OURS + peers.OLD if own else ())]
        topics = matrix.run(t, s, [p for p in made if p.produces], [p for p in made if p.consumes], a.quick, folder)
        cli.run(t, s, a.quick, own)
        code = s.stop()
        if own:
            t.check("SIGTERM ends kbroker with exit code 0", [] if code == 0 else f"exit code {code}\n{s.log_tail()}")
        files(t, s, folder)
        s.start()
        for p in made:
            p.close()
        reader = peers.RdkNew(s.boot)
        producers = {p.name: p for p in made}
        for name, p in producers.items():   # what was there before the stop is there after it
            matrix.read_back(t, reader, p, {k: v for k, v in topics.items() if k.startswith(name + ".m")}, folder)
    return t.close()


if __name__ == "__main__":
    tally.main(run)
