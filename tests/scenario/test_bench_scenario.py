"""kc bench scenario 1..5 with small counts: what it measures is there, its JSON and charts are as told, no process of it stays, wrong words are told."""
import json
import os
import pty
import select
import signal
import subprocess
import time
import xml.etree.ElementTree

import scene
from scene import KC, Broker, equal, eventually, holds, main, run, test, until_caught

CELLS = {1: 12, 2: 7, 3: 9, 4: 5}


def bench(*args, timeout=300, **kw):
    return run(KC, "bench", "scenario", *args, timeout=timeout, **kw)


def clusters_of(pid):
    """The clusters that this kc started: children of it, and what is in the temporary folders that they use."""
    out = subprocess.run(["ps", "-eo", "pid,ppid,args"], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in out.splitlines()[1:]]
    found, parents = [], {str(pid)}
    for _ in range(3):  # kc, the cluster, its nodes
        more = [r for r in rows if r[1] in parents and "kbroker" in r[2] and r[0] not in found]
        found += [r[0] for r in more]
        parents |= {r[0] for r in more}
    return found


def is_gone(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


def svg_of(path):
    """It parses, and its marks: how many rectangles, how many circles, all texts."""
    root = xml.etree.ElementTree.parse(path).getroot()
    name = "{http://www.w3.org/2000/svg}"
    equal(root.tag, f"{name}svg")
    return len(root.findall(f"{name}rect")), len(root.findall(f"{name}circle")), [t.text for t in root.findall(f"{name}text")]


def check_cells(number, d, rounds, records):
    equal((d["scenario"], d["brokers"], d["own"], d["records"], d["rounds"], len(d["cells"])), (number, 4, True, records, rounds, CELLS[number]))
    for c in d["cells"]:
        for mode in ("pipelined", "one_by_one"):
            m = c[mode]
            equal((m["records"], m["failed"], m["stored"], len(m["rounds"]), m["errors"]), (records * rounds, 0, records * rounds, rounds, {}), f"{c}")
            if not m["low"] <= m["records_per_s"] <= m["high"] or m["low"] <= 0 or not 1 <= m["records_per_batch"] <= (16 if mode == "pipelined" else 1):
                raise AssertionError(f"{m}")
    equal(d["cells"][0]["pipelined"]["ratio"], 1)
    for claim in d["conclusions"]:
        if claim["verdict"] not in ("holds", "within noise", "does not hold") or not claim["pairs"] or claim["mode"] not in ("pipelined", "one by one"):
            raise AssertionError(f"{claim}")
        for p in claim["pairs"]:
            a, b = (d["cells"][p[x]]["pipelined" if claim["mode"] == "pipelined" else "one_by_one"]["records_per_s"] for x in "ab")
            if abs(p["ratio"] - a / b) > 0.01 + 2 / b:
                raise AssertionError(f"{p}: {a} to {b}")


def plays(folder, number, words):
    svg, out = folder / "c.svg", folder / "c.json"
    r = bench(number, "--records", 200, "--rounds", 2, "--svg", svg, "--json-file", out)
    equal(r.returncode, 0, r.stderr)
    for line in r.stdout.splitlines():
        if len(line) > 80:
            raise AssertionError(f"wider than 80 columns: {line}")
    holds(r.stdout, f"Scenario {number}:", "published", "pipelined", "one by one", "Do the conclusions hold here?", *words)
    d = json.loads(out.read_text())
    check_cells(number, d, 2, 200)
    rects, circles, texts = svg_of(svg)
    published = sum(c["published"] is not None for c in d["cells"])
    if number == 4:
        equal(circles, 2 * CELLS[4] + published)
    else:
        equal(rects, 1 + 3 + 2 * CELLS[number] + published, "the ground, the legend, a bar a figure")
    holds("\n".join(texts), f"Scenario {number}:", "published (Kafka 0.10.1, four machines)", "pipelined", "one by one", "ratio to the first cell")
    return d


@test
def scenario_1_is_measured_and_told(folder):
    d = plays(folder, 1, ["acks 0 is faster than 1", "more replicas are slower", "min.insync.replicas does not matter", "28,511", "46,764"])
    equal([c["published"] for c in d["cells"]], [28511, 22360, 22927, 16194, 16600, 16680, 45354, 46427, 46764, 33950, 32192, 32276])
    equal({c["claim"]: len(c["pairs"]) for c in d["conclusions"]},
          {"acks 0 is faster than 1, 1 than -1": 6, "with acks -1 more replicas are slower": 3, "min.insync.replicas does not matter": 3})


@test
def scenario_2_is_measured_and_told(folder):
    d = plays(folder, 2, ["more replicas are slower", "min.insync.replicas does not matter", "9,739", "8,217"])
    equal([(c["rf"], c["min_isr"]) for c in d["cells"]], [(2, 1), (2, 2), (3, 1), (3, 2), (4, 1), (4, 2), (4, 4)])


@test
def scenario_3_is_measured_and_told(folder):
    d = plays(folder, 3, ["acks 0 is faster than 1", "76,696", "18,365"])
    equal({(c["partitions"], c["min_isr"]) for c in d["cells"]}, {(1, 1)})


@test
def scenario_4_is_measured_and_told(folder):
    d = plays(folder, 4, ["more partitions are faster", "less than in proportion", "22,927"])
    equal([c["partitions"] for c in d["cells"]], [1, 2, 4, 8, 12])


@test
def scenario_5_tells_what_became_of_every_record(folder):
    svg, out = folder / "c.svg", folder / "c.json"
    r = bench(5, "--records", 3000, "--mode", "both", "--svg", svg, "--json-file", out)
    equal(r.returncode, 0, r.stderr)
    for line in r.stdout.splitlines():
        if len(line) > 80:
            raise AssertionError(f"wider than 80 columns: {line}")
    holds(r.stdout, "12,840", "13,870", "NetworkException", "nothing acknowledged is lost: yes", "with idempotence none is: yes")
    d = json.loads(out.read_text())
    equal([(c["mode"], c["killed"], c["restarted"], c["idempotence"], c["retries"]) for c in d["cases"][:5]],
          [("pipelined", 2, False, False, 0), ("pipelined", 2, False, False, 10**8), ("pipelined", 2, False, True, 10**8),
           ("pipelined", 3, True, False, 10**8), ("pipelined", 3, True, True, 10**8)])
    equal(len(d["cases"]), 10)
    for c in d["cases"]:
        equal((c["sent"], c["acked"] + c["failed"], c["lost"], c["told_wrong"]), (3000, 3000, 0, 0), f"{c}")
        equal(c["stored"], c["acked"] + c["failed_but_stored"], f"{c}")
        if c["retries"]:
            equal((c["acked"], c["failed"]), (3000, 0), f"{c}")
        if c["idempotence"] or not c["retries"]:
            equal((c["doubled"], c["extra_copies"]), (0, 0), f"{c}")
        equal(sum(e["ended"] for e in c["errors"].values()), c["failed"], f"{c}")
    three = [c for c in d["cases"] if c["killed"] == 3 and c["mode"] == "pipelined"]
    for c in three:  # one of four is left: below min.insync.replicas until the others are back
        if not c["errors"].get("NOT_ENOUGH_REPLICAS", {}).get("met"):
            raise AssertionError(f"{c}")
    holds("\n".join(svg_of(svg)[2]), "acked, lost", "two of four killed, retries 0")


@test
def json_alone_is_one_object(folder):
    r = bench(2, "--records", 50, "--rounds", 1, "--mode", "sync", "--json", "--size", 100, "--set", "batch.size=1000")
    equal(r.returncode, 0, r.stderr)
    d = json.loads(r.stdout)
    equal((d["size"], d["cells"][0]["pipelined"], {c["mode"] for c in d["conclusions"]}), (100, None, {"one by one"}))


@test
def seconds_bound_a_cell(folder):
    r = bench(4, "--seconds", 1, "--rounds", 1, "--mode", "pipelined", "--json")
    equal(r.returncode, 0, r.stderr)
    for c in json.loads(r.stdout)["cells"]:
        m = c["pipelined"]
        if not 0 < m["records"] / m["records_per_s"] < 30:
            raise AssertionError(f"{m}")


@test
def a_cluster_that_runs_is_measured_as_far_as_it_goes(folder):
    b = Broker(folder / "d")
    r = bench(3, "-b", b.address, "--records", 50, "--rounds", 1, "--json")
    equal(r.returncode, 0, r.stderr)
    d = json.loads(r.stdout)
    equal((d["own"], d["brokers"], [c["rf"] for c in d["cells"] if c["pipelined"]]), (False, 1, [1, 1, 1]))
    equal([c["verdict"] for c in d["conclusions"] if "replicas" in c["claim"]], ["not measured", "not measured"])
    eventually("its topics are gone", lambda: "kc-bench" not in scene.kc(b, "topic", "list").stdout)
    r = bench(2, "-b", b.address, "--records", 50)
    equal((r.returncode, r.stdout), (1, ""))
    holds(r.stderr, "at least 2 brokers, this cluster has 1")
    r = bench(5, "-b", b.address)
    equal((r.returncode, r.stdout), (2, ""))
    holds(r.stderr, "never on one that is given")


def start_until_running(*args):
    p = subprocess.Popen([KC, "bench", "scenario", *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    scene._children.append(p)
    until_caught(p, signal.SIGINT)
    eventually("its five processes run", lambda: len(clusters_of(p.pid)) >= 5, 60)
    return p, clusters_of(p.pid)


@test
def however_it_ends_no_process_of_it_stays(folder):
    for sig, code in ((signal.SIGINT, 1), (signal.SIGTERM, 1), (signal.SIGKILL, -9)):
        p, pids = start_until_running("1", "--seconds", "60", "--rounds", "1")
        time.sleep(0.5)
        p.send_signal(sig)
        _, err = p.communicate(timeout=60)
        equal(p.returncode, code, err.decode())
        if sig != signal.SIGKILL:
            holds(err.decode(), "interrupted")
        eventually(f"all of them are gone after {sig}", lambda: all(is_gone(x) for x in pids), 60)


@test
def ctrl_c_while_brokers_are_down_leaves_nothing(folder):
    p, pids = start_until_running("5", "--seconds", "9")
    time.sleep(4)  # two were killed by then
    pids += clusters_of(p.pid)
    p.send_signal(signal.SIGINT)
    p.communicate(timeout=60)
    equal(p.returncode, 1)
    eventually("all of them are gone", lambda: all(is_gone(x) for x in pids), 60)


@test
def progress_goes_to_a_terminal_and_fits_it(folder):
    outer, inner = pty.openpty()
    p = subprocess.Popen([KC, "bench", "scenario", "2", "--records", "20000", "--rounds", "1"], stdout=subprocess.DEVNULL, stderr=inner)
    scene._children.append(p)
    os.close(inner)
    seen = b""
    end = time.monotonic() + 120
    while time.monotonic() < end:
        if not select.select([outer], [], [], 1)[0]:
            continue
        try:
            more = os.read(outer, 65536)
        except OSError:
            break
        if not more:
            break
        seen += more
    os.close(outer)
    equal(p.wait(60), 0)
    lines = [x.replace("\x1b[K", "") for x in seen.decode().split("\r") if "scenario 2: " in x]
    holds("\n".join(lines), "of 14: rf ", "min.isr", "ETA ")
    if max(map(len, lines)) > 80:
        raise AssertionError(max(lines, key=len))


@test
def an_interrupt_is_told_on_a_line_of_its_own(folder):
    outer, inner = pty.openpty()
    p = subprocess.Popen([KC, "bench", "scenario", "2", "--seconds", "60", "--rounds", "1"], stdout=subprocess.DEVNULL, stderr=inner)
    scene._children.append(p)
    os.close(inner)
    seen = b""
    while b"scenario 2: " not in seen:
        if not select.select([outer], [], [], 60)[0]:
            raise AssertionError(f"no progress in a minute: {seen}")
        seen += os.read(outer, 65536)
    p.send_signal(signal.SIGINT)
    try:
        while select.select([outer], [], [], 60)[0]:
            more = os.read(outer, 65536)
            if not more:
                break
            seen += more
    except OSError:  # the terminal's other end is closed: all was said
        pass
    os.close(outer)
    equal(p.wait(60), 1)
    holds(seen.decode(), "\r\x1b[Kkc: bench")
    holds(seen.decode().rsplit("\x1b[K", 1)[1], "interrupted")


@test
def wrong_words_are_told(folder):
    for args, words in (([], ["1 to 5", "--list"]), (["6"], ["no scenario"]), (["x"], ["no scenario"]), (["1", "2"], ["too many"]), (["1", "--mode", "fast"], ["pipelined, sync or both"]),
                        (["1", "--records", "5", "--seconds", "2"], ["one or the other"]), (["1", "-b", "x", "--data", "y"], ["one or the other"]), (["5", "--rounds", "3"], ["record by record"]),
                        (["5", "--records", "10"], ["30 or more"]), (["2", "--size", "5"], ["16 to"]), (["2", "--size", "1000000"], ["16 to"]), (["--list", "1"], ["without a number"]),
                        (["1", "--rounds", "0"], ["from 1"]), (["1", "--rounds", "100"], ["at most 99"]), (["1", "--records", "0"], ["from 1"]), (["1", "--secnds", "1"], ["--seconds"]),
                        (["1", "--set", "a.b=c"], ["a.b"])):
        r = bench(*args)
        equal((r.returncode, r.stdout), (2, ""), " ".join(args))
        holds(r.stderr, *words)
    r = bench("--list")
    equal((r.returncode, len(r.stdout.splitlines())), (0, 6))
    r = bench("--help")
    equal(r.returncode, 0)
    holds(r.stdout, "conclusions [{claim", "exit code: 0", "KBROKER")
    equal([line for line in r.stdout.splitlines() if len(line) > 80], [])


@test
def what_cannot_be_is_told_before_it_takes_time(folder):
    for args, env, words in ((["--svg", folder / "no" / "x.svg"], {}, ["x.svg cannot be written"]), (["--json-file", folder], {}, ["cannot be written"]),
                             ([], {"KBROKER": "/no/kbroker"}, ["KBROKER=/no/kbroker", "-b HOST:PORT"]), (["--data", "/proc/x"], {}, ["the cluster did not start", "/proc/x"])):
        r = bench(1, *args, env={**os.environ, **env})
        equal((r.returncode, r.stdout), (1, ""), f"{args}")
        holds(r.stderr, *words)
    alone = folder / "kc"
    alone.write_bytes(open(KC, "rb").read())
    alone.chmod(0o755)
    r = run(alone, "bench", "scenario", "1", env={"PATH": str(folder)})
    equal(r.returncode, 1)
    holds(r.stderr, "kbroker is not found", str(folder / "kbroker"), "-b HOST:PORT")


@test
def the_cluster_in_a_folder_stays_there(folder):
    for _ in range(2):
        r = bench(4, "--data", folder / "c", "--records", 20, "--rounds", 1, "--json")
        equal(r.returncode, 0, r.stderr)
    equal(sorted(p.name for p in (folder / "c").glob("node-?")), ["node-0", "node-1", "node-2", "node-3"])


@test
def a_full_disk_fails_the_run(folder):
    small = folder / "small"
    small.mkdir()
    equal(run("mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", small).returncode, 0, "mount")
    try:
        r = bench(4, "--data", small / "c", "--records", 30000, "--rounds", 1, "--mode", "pipelined")
        equal(r.returncode, 1, r.stdout)
        holds(r.stderr, "of 30000 records failed: ")  # by which error depends on whose disk is full first
    finally:
        run("umount", "-l", small)


@test
def a_broker_that_refuses_fails_the_figures(folder):
    rules = folder / "rules.json"
    rules.write_text(json.dumps([{"api": "Produce", "every": 50, "error": "NOT_ENOUGH_REPLICAS"}]))
    b = Broker(folder / "d", "--faults", rules)
    r = bench(3, "-b", b.address, "--records", 500, "--rounds", 1, "--mode", "sync", "--json")
    equal(r.returncode, 1)
    holds(r.stderr, "records failed though nothing was killed")
    d = json.loads(r.stdout)
    m = next(c for c in d["cells"] if c["acks"] == -1)["one_by_one"]
    equal((m["records"], m["failed"], m["stored"], m["errors"]["NOT_ENOUGH_REPLICAS"]), (500, m["failed"], 500 - m["failed"], m["failed"]))
    if not m["failed"]:
        raise AssertionError(f"{m}")


if __name__ == "__main__":
    main()
