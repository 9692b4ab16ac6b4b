"""kc group and Apache Kafka's kafka-consumer-groups about the same groups: what one shows, plans, sets and deletes, the other sees.

Used by test_groups.py, on kbroker and on Apache Kafka. Each function returns problems.
"""
import json
import re
import signal
import subprocess
import time

from . import cache, servers, tools


def kc(boot, *args, ok=True):
    r = subprocess.run([cache.build_tree() / "bin" / "kc", "group", *map(str, args), "-b", boot], capture_output=True, text=True, timeout=120)
    if ok and r.returncode:
        raise tools.ToolError(f"kc group {' '.join(map(str, args))} exited {r.returncode}: {r.stderr.strip()}")
    return r.stdout if ok else r.stdout + r.stderr


class Both:
    """One group, seen by both."""

    def __init__(self, boot, box, topic, group):
        self.boot, self.box, self.topic, self.group = boot, box, topic, group

    def java(self, *args, **kw):
        return self.box("kafka-consumer-groups", "--bootstrap-server", self.boot, *args, **kw)

    def of_java(self):
        """{(topic, partition): (committed, end, lag, member)}, None for '-'."""
        said = self.java("--describe", "--group", self.group)
        rows = re.findall(r"^\S+\s+(\S+)\s+(\d+)\s+(\d+|-)\s+(\d+|-)\s+(\d+|-)\s+(\S+)", said, re.M)
        return {(t, int(p)): tuple(None if x == "-" else x if i == 3 else int(x) for i, x in enumerate(rest)) for t, p, *rest in rows}

    def of_kc(self):
        g = json.loads(kc(self.boot, "describe", self.group, "--json"))
        known = lambda n: None if n < 0 else n  # noqa: E731
        return {(p["topic"], p["partition"]): (known(p["committed"]), known(p["log_end"]), known(p["lag"]), p["member"]) for p in g["partitions"]}

    def agree(self, what, wait=30):
        """A member may commit between the two looks: until they are the same."""
        end = time.monotonic() + wait
        while (seen := (self.of_java(), self.of_kc()))[0] != seen[1] and time.monotonic() < end:
            time.sleep(0.3)
        return [] if seen[0] == seen[1] else [f"{what}: kafka-consumer-groups {seen[0]}, kc {seen[1]}"]

    def plans(self, method, *kc_method):
        """What both would do, which nobody does."""
        said = self.java("--reset-offsets", "--group", self.group, "--topic", self.topic, *method, "--dry-run")
        theirs = {int(p): int(n) for p, n in re.findall(rf"^{self.group}\s+{self.topic}\s+(\d+)\s+(\d+)", said, re.M)}
        shown = json.loads(kc(self.boot, "reset", self.group, self.topic, *(kc_method or method), "--json"))
        ours = {p["partition"]: p["new"] for p in shown["partitions"]}
        return [] if theirs == ours and theirs else [f"{' '.join(method)}: kafka-consumer-groups plans {theirs}, kc {ours}"]


def living(both):
    """While a member has the partitions."""
    member = servers.spawn([cache.kcat(), "-b", both.boot, "-G", both.group, both.topic, "-u", "-q", "-X", "auto.offset.reset=earliest", "-X", "session.timeout.ms=6000",
                            "-X", "auto.commit.interval.ms=300"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    bad, end = [], time.monotonic() + 60
    while time.monotonic() < end:
        try:
            seen = both.of_kc()
        except tools.ToolError:  # not there yet
            seen = {}
        if seen and all(lag == 0 and who for _, _, lag, who in seen.values()):
            break
        time.sleep(0.3)
    else:
        bad.append(f"the member does not have all: {seen}")
    bad += both.agree("living")
    for what, said in (("reset", kc(both.boot, "reset", both.group, both.topic, "--to-earliest", "--execute", ok=False)),
                       ("delete", kc(both.boot, "delete", both.group, ok=False)), ("delete-offsets", kc(both.boot, "delete-offsets", both.group, both.topic, ok=False))):
        if not re.search("active member|reads the topic", said):
            bad.append(f"{what} of a living group: {said[-300:]}")
    listed = json.loads(next(x for x in kc(both.boot, "list", "--json").splitlines() if f'"{both.group}"' in x))
    theirs = both.java("--list", "--state").split()
    if listed["state"] != "Stable" or theirs[theirs.index(both.group) + 1:][:2].count("Stable") != 1:
        bad.append(f"listed as {listed}, by kafka-consumer-groups as {theirs}")
    member.send_signal(signal.SIGTERM)
    member.wait(60)
    servers.forget(member)
    return bad


def resets(both):
    bad = both.agree("empty")
    for method in (["--to-earliest"], ["--to-latest"], ["--to-offset", "7"], ["--to-offset", "100000"], ["--shift-by", "-5"], ["--shift-by", "-100000"], ["--shift-by", "3"]):
        bad += both.plans(method)
    bad += both.plans(["--by-duration", "PT2H"], "--to-time", "2h")
    bad += both.plans(["--to-datetime", "2020-01-01T00:00:00.000"], "--to-time", "2020-01-01T00:00")
    bad += both.plans(["--to-datetime", "2100-01-01T00:00:00.000+01:00"], "--to-time", "2100-01-01T00:00+01:00")
    kc(both.boot, "reset", both.group, f"{both.topic}:0,2", "--to-offset", 4, "--execute")
    bad += both.agree("set by kc")
    if {k[1]: v[0] for k, v in both.of_java().items() if k[1] in (0, 2)} != {0: 4, 2: 4}:
        bad.append(f"set by kc to 4: {both.of_java()}")
    both.java("--reset-offsets", "--group", both.group, "--topic", both.topic, "--shift-by", "-2", "--execute")
    bad += both.agree("set by kafka-consumer-groups")
    exported = both.java("--reset-offsets", "--group", both.group, "--topic", both.topic, "--to-earliest", "--export", "--dry-run")
    plan = servers.temp_folder("plan") / "offsets.csv"
    plan.write_text("".join(line.replace('"', "") + "\n" for line in exported.splitlines() if line.count(",") == 2))
    kc(both.boot, "reset", both.group, "--from-file", plan, "--execute")
    if {v[0] for v in both.of_java().values()} != {0}:
        bad.append(f"set from what it exported ({plan.read_text()!r}): {both.of_java()}")
    return bad


def deletions(both):
    bad = []
    kc(both.boot, "delete-offsets", both.group, f"{both.topic}:1")
    bad += both.agree("one offset deleted by kc")
    if (both.topic, 1) in both.of_java():
        bad.append(f"after kc group delete-offsets: {both.of_java()}")
    both.java("--delete-offsets", "--group", both.group, "--topic", f"{both.topic}:0")
    bad += both.agree("another deleted by kafka-consumer-groups")
    kc(both.boot, "delete", both.group)
    if both.group in both.java("--list").split() or both.group in kc(both.boot, "list").split():
        bad.append("it is still there after kc group delete")
    said = kc(both.boot, "describe", both.group, ok=False)
    if "GROUP_ID_NOT_FOUND" not in said:
        bad.append(f"a group that is gone: {said}")
    return bad


def run(t, boot, box, where):
    """A topic of its own, a group of its own."""
    both = Both(boot, box, "judged", "judged-group")
    box("kafka-topics", "--bootstrap-server", boot, "--create", "--topic", both.topic, "--partitions", 3)
    for p in range(3):
        tools.kcat("-P", "-b", boot, "-t", both.topic, "-p", p, "-X", "acks=all", stdin=b"".join(b"v%d\n" % i for i in range(20)))
    for name, call in (("a living group", living), ("plans and resets", resets), ("deletions", deletions)):
        t.attempt(f"kc group and kafka-consumer-groups on {where}: {name}", call, both)
