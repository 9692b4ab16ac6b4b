#!/usr/bin/env python3
"""compare.py - compares client/wire/schema field by field with the message definitions inside Apache Kafka's jars.

Called by run.sh: compare.py JARS, a folder of kafka-clients-V.jar and kafka-metadata-V.jar. The newest release is compared strictly
(names, types, versions, nullable, default, tag, ignorable, flexible, order). The older ones are compared in every version
that they know: strictly in those that newer releases dropped, else by what is on the wire. Fields and messages marked `ours` are the
only differences allowed, and are listed. Then a difference of each kind is planted, and must be found.

compare.py --list prints `Name min max` a message; compare.py --coverage FILE... checks that the entries cover every version.
"""
import copy
import importlib.util
import json
import os
import re
import struct
import sys
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
WIRE = os.path.join(HERE, "../../../client/wire")
NEWEST, OLDER = "4.4.0", ["3.9.1", "2.8.2"]
# Definitions that an old release changed without a new version; there is nothing to be compatible with.
SKIPPED = {("LeaderChangeMessage", "2.8.2"): "KRaft was a preview; its version 0 then lacked the field `version`"}
# What a coordinator writes into its own topics has no definition in any jar; SchemaPeer holds it against the generated classes.
CLASSES_ONLY = {"OffsetCommitKey", "OffsetCommitValue", "GroupMetadataKey", "GroupMetadataValue"}
spec = importlib.util.spec_from_file_location("schemagen", os.path.join(WIRE, "schemagen.py"))
schemagen = importlib.util.module_from_spec(spec)
sys.dont_write_bytecode = True
spec.loader.exec_module(schemagen)


def our_messages():
    folder = os.path.join(WIRE, "schema")
    files = [os.path.join(folder, f) for f in os.listdir(folder) if f.endswith(".ks")]
    return json.loads(json.dumps(schemagen.to_json(schemagen.load(files))))


def read_definition(text):
    """JSON with // comments; an old release has a stray closing brace behind one, which its own reader ignores too."""
    text = re.sub(r"^\s*//.*$", "", text, flags=re.M)
    text = re.sub(r'(?<=[,\]}"])\s*//[^"\n]*$', "", text, flags=re.M)
    return json.JSONDecoder().raw_decode(text.strip())[0]


def load_release(jars, version):
    found = {}
    for part in ("clients", "metadata"):
        path = os.path.join(jars, f"kafka-{part}-{version}.jar")
        if not os.path.exists(path):
            continue
        with zipfile.ZipFile(path) as z:
            for n in z.namelist():
                if re.fullmatch(r"common/(message|metadata)/\w+\.json", n):
                    d = read_definition(z.read(n).decode())
                    found[d["name"]] = normal_message(d)
    return found


def rng(text):
    return None if text in (None, "none") else list(schemagen.parse_range(text))


def normal_default(f, base, array):
    d = f.get("default")
    if d is None or d == "":
        return None
    d = str(d).lower() if isinstance(d, bool) else str(d)
    if base in schemagen.INT_RANGES and not array:
        d = str(int(d, 0))
    return None if d in ("0", "false") else d


def normal_message(d):
    common = {c["name"]: c["fields"] for c in d.get("commonStructs", [])}

    def fields(fs):
        out = []
        for f in fs:
            array = f["type"].startswith("[]")
            base = f["type"][2:] if array else f["type"]
            sub = f.get("fields") or (common.get(base) if base not in schemagen.PRIMITIVES else None)
            out.append({"name": f["name"][0].lower() + f["name"][1:], "type": f["type"], "versions": rng(f["versions"]),
                        "nullable": rng(f.get("nullableVersions")), "tag": f["tag"] if "tag" in f else None,
                        "tagged": rng(f.get("taggedVersions")), "default": normal_default(f, base, array),
                        "ignorable": str(f.get("ignorable", False)).lower() == "true",
                        "flexible_none": f.get("flexibleVersions") == "none", "fields": fields(sub) if sub else None})
            if out[-1]["tag"] is not None:
                out[-1]["tag"] = int(out[-1]["tag"])
        return out

    versions = rng(d["validVersions"])
    if str(d.get("latestVersionUnstable", False)).lower() == "true":
        versions[1] -= 1
    flexible = rng(d.get("flexibleVersions"))
    return {"name": d["name"], "kind": d["type"], "key": d.get("apiKey", -1), "versions": versions,
            "flexible": flexible[0] if flexible else schemagen.OPEN, "fields": fields(d.get("fields", []))}


def carries(r, v):
    return r is not None and r[0] <= v <= r[1]


def meets(r, versions):
    return r[0] <= versions[1] and r[1] >= versions[0]


class Comparison:
    def __init__(self):
        self.passed, self.failures, self.ours = 0, [], []

    def check(self, where, ours, theirs):
        if ours == theirs:
            self.passed += 1
        else:
            self.failures.append(f"{where}: ours {ours}, Kafka's {theirs}")

    def strict(self, where, ours, theirs, versions):
        """Every attribute of every field that one of `versions` carries."""
        for f in ours:
            if f["ours"]:
                self.ours.append(f"{where}.{f['name']}")
        a = [f for f in ours if not f["ours"] and meets(f["versions"], versions)]
        b = [f for f in theirs if meets(f["versions"], versions)]
        self.check(where + " (fields)", [f["name"] for f in a], [f["name"] for f in b])
        for x, y in zip(a, b):
            at = f"{where}.{x['name']}"
            for key in ("name", "type", "versions", "tag", "default", "ignorable", "flexible_none"):
                if key == "ignorable" and all(carries(y["versions"], v) for v in range(versions[0], versions[1] + 1)):
                    continue  # says nothing where every version has the field; the release that lacks it in one decides
                mine = normal_default(x, x["type"].removeprefix("[]"), x["type"].startswith("[]")) if key == "default" else x[key]
                self.check(f"{at} ({key})", mine, y[key])
            clip = lambda r, f: r and [max(r[0], f["versions"][0]), min(r[1], f["versions"][1])]
            self.check(f"{at} (nullable)", clip(x["nullable"], x), clip(y["nullable"], y))
            if y["tag"] is not None:
                self.check(f"{at} (tagged in all its versions)", x["versions"], y["tagged"])
            self.check(f"{at} (struct)", x["fields"] is not None, y["fields"] is not None)
            if x["fields"] and y["fields"]:
                self.strict(at, x["fields"], y["fields"], versions)

    def layout(self, where, ours, theirs, v, flexible, named):
        """What version v has on the wire; with `named` also names, defaults and what may be dropped."""
        def shape(fs):
            out = []
            for f in fs:
                if not carries(f["versions"], v) or f.get("ours"):
                    if named and not f.get("ours"):
                        out.append(("absent", f["name"], f["ignorable"], f["default"]))
                    continue
                tag = f["tag"] if f["tag"] is not None and carries(f.get("tagged") or f["versions"], v) else None
                base = f["type"].removeprefix("[]")
                kind = ("[]" if f["type"].startswith("[]") else "") + (base if base in schemagen.PRIMITIVES else "struct")
                item = ["present", kind, carries(f["nullable"], v), tag, flexible and not f["flexible_none"]]
                if named:
                    item += [f["name"], normal_default(f, base, f["type"].startswith("[]"))]
                out.append((*item, f["fields"]))
            return out
        # A tagged field may join a version later: an old release need not know it.
        tags = {f["tag"] for f in theirs}
        a, b = shape([f for f in ours if f["tag"] is None or f["tag"] in tags]), shape(theirs)
        if named:  # fields that only newer versions know are no part of an old release
            known = {f["name"] for f in theirs}
            a = [x for x in a if x[0] != "absent" or x[1] in known]
            a, b = [x for x in a if x[0] != "absent"] + sorted(x for x in a if x[0] == "absent"), \
                [x for x in b if x[0] != "absent"] + sorted(x for x in b if x[0] == "absent")
        if flexible:
            tagless = lambda xs: [x for x in xs if x[0] == "absent" or x[3] is None] + sorted((x for x in xs if x[0] != "absent" and x[3] is not None), key=lambda x: x[3])
            a, b = tagless(a), tagless(b)
        cut = lambda xs: [x[:-1] if x[0] == "present" else x for x in xs]
        self.check(f"{where} v{v}", cut(a), cut(b))
        for x, y in zip(a, b):
            if x[0] == "present" and y[0] == "present" and x[-1] and y[-1]:
                self.layout(f"{where}.{x[-3] if named else ''}[]", x[-1], y[-1], v, flexible, named)


KINDS = {"record": "metadata", "message": None}


def compare(ours, releases, report=lambda text: None):
    c = Comparison()
    newest = releases[NEWEST]
    for m in ours:
        name = m["name"]
        if m["ours"]:
            c.ours.append(name)
            continue
        if name in CLASSES_ONLY:
            continue
        k = newest.get(name)
        if k is None:
            c.failures.append(f"{name}: not in Kafka {NEWEST}, and not marked ours")
            continue
        if KINDS.get(m["kind"], m["kind"]) is not None:
            c.check(f"{name} (kind)", KINDS.get(m["kind"], m["kind"]), k["kind"])
        c.check(f"{name} (key)", m["key"], k["key"])
        c.check(f"{name} (flexible)", m["flexible"], k["flexible"])
        known = [r[name]["versions"] for r in releases.values() if name in r]
        # a request's last version is the stable one of both halves
        last = k["versions"][1]
        if m["kind"] in ("request", "response"):
            other = name.removesuffix("Response") + "Request" if m["kind"] == "response" else name.removesuffix("Request") + "Response"
            last = min(last, newest[other]["versions"][1])
        stable = [k["versions"][0], last]
        c.check(f"{name} (versions)", m["versions"], [min(v[0] for v in known), last])
        c.strict(name, m["fields"], k["fields"], stable)
        dropped = set(range(m["versions"][0], stable[0]))
        for release in OLDER:
            o = releases[release].get(name)
            if o is None:
                continue
            if (name, release) in SKIPPED:
                report(f"not compared: {name} of {release}: {SKIPPED[name, release]}")
                continue
            for v in range(o["versions"][0], min(o["versions"][1], m["versions"][1]) + 1):
                c.layout(f"{name} as in {release}", m["fields"], o["fields"], v, v >= m["flexible"], v in dropped and release == OLDER[0])
                c.check(f"{name} v{v} flexible in {release}", v >= m["flexible"], v >= o["flexible"])
            if release == OLDER[0]:
                dropped -= set(range(o["versions"][0], o["versions"][1] + 1))
        if dropped:
            c.failures.append(f"{name}: no release confirms versions {sorted(dropped)}")
    return c


def plant(ours, releases):
    """A difference of each kind, in turn; each must be found. The number of kinds that were, and those that were not."""
    def field(ms, message, *path):
        fs = next(m for m in ms if m["name"] == message)["fields"]
        for name in path:
            f = next(f for f in fs if f["name"] == name)
            fs = f["fields"]
        return f
    kinds = {
        "name": lambda ms: field(ms, "FetchRequest", "maxWaitMs").update(name="maxWaitTime"),
        "type": lambda ms: field(ms, "FetchRequest", "topics", "partitions", "fetchOffset").update(type="int32"),
        "versions": lambda ms: field(ms, "MetadataResponse", "topics", "topicId").update(versions=[9, 32767]),
        "nullable": lambda ms: field(ms, "MetadataResponse", "topics", "name").update(nullable=[11, 32767]),
        "default": lambda ms: field(ms, "ListOffsetsResponse", "topics", "partitions", "leaderEpoch").update(default="0"),
        "tag": lambda ms: field(ms, "ProduceResponse", "nodeEndpoints").update(tag=1),
        "ignorable": lambda ms: field(ms, "FetchRequest", "rackId").update(ignorable=False),
        "flexible": lambda ms: next(m for m in ms if m["name"] == "TopicRecord").update(flexible=32767),
        "flexible none": lambda ms: field(ms, "RequestHeader", "clientId").update(flexible_none=False),
        "key": lambda ms: next(m for m in ms if m["name"] == "FetchRequest").update(key=2),
        "last version": lambda ms: next(m for m in ms if m["name"] == "FetchRequest").update(versions=[0, 17]),
        "first version": lambda ms: next(m for m in ms if m["name"] == "ProduceRequest").update(versions=[3, 13]),
        "missing field": lambda ms: next(m for m in ms if m["name"] == "ConfigRecord")["fields"].pop(),
        "order": lambda ms: next(m for m in ms if m["name"] == "TopicRecord")["fields"].reverse(),
        "dropped version's default": lambda ms: field(ms, "ListOffsetsRequest", "topics", "partitions", "maxNumOffsets").update(default="2"),
        "dropped version's order": lambda ms: field(ms, "ListOffsetsResponse", "topics", "partitions")["fields"].sort(key=lambda f: f["name"] != "oldStyleOffsets"),
        "unmarked addition": lambda ms: next(m for m in ms if m["name"] == "TopicRecord")["fields"].append(
            dict(field(ms, "TopicRecord", "name"), name="extra")),
    }
    missed = []
    for kind, change in kinds.items():
        ms = copy.deepcopy(ours)
        change(ms)
        if not compare(ms, releases).failures:
            missed.append(kind)
    return len(kinds) - len(missed), missed


def entries(path):
    with open(path, "rb") as f:
        data = f.read()
    at = 0
    while at < len(data):
        (n,) = struct.unpack_from(">H", data, at)
        name = data[at + 2:at + 2 + n].decode()
        version, size = struct.unpack_from(">hi", data, at + 2 + n)
        at += 2 + n + 6
        yield name, version, data[at:at + size]
        at += size


def coverage(paths):
    seen = {(n, v) for p in paths for n, v, _ in entries(p)}
    want = {(m["name"], v) for m in our_messages() if not m["ours"] for v in range(m["versions"][0], m["versions"][1] + 1)}
    for n, v in sorted(want - seen):
        print(f"FAIL {n} v{v}: no instance")
    print(f"coverage: {len(want & seen)} passed, {len(want - seen)} failed")
    return 0 if want <= seen else 1


def main():
    if sys.argv[1:] == ["--list"]:
        for m in our_messages():
            print(m["name"], *m["versions"])
        return 0
    if len(sys.argv) > 2 and sys.argv[1] == "--coverage":
        return coverage(sys.argv[2:])
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    ours = our_messages()
    releases = {v: load_release(sys.argv[1], v) for v in [NEWEST, *OLDER]}
    for v, r in releases.items():
        if not r:
            sys.exit(f"no definitions of Kafka {v} in {sys.argv[1]}")
    c = compare(ours, releases, print)
    for f in c.failures:
        print("FAIL", f)
    for o in c.ours:
        print("ours:", o)
    found, missed = plant(ours, releases)
    for kind in missed:
        print(f"FAIL a planted difference was not found: {kind}")
    print(f"schemas: {c.passed + found} passed, {len(c.failures) + len(missed)} failed")
    return 1 if c.failures or missed else 0


if __name__ == "__main__":
    sys.exit(main())
