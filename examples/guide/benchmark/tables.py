#!/usr/bin/env python3
"""Puts figures of your own into benchmark.md: tables and charts of what `kc bench scenario N --json-file N.json --svg N.svg` wrote.

    examples/guide/benchmark/tables.py FOLDER      FOLDER has 1.json, 1.svg … 5.json, 5.svg, or some of them
"""
import json
import re
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "benchmark.md"
SEEN = {"KC_TRANSPORT": "connection lost (Kafka: NETWORK_EXCEPTION)"}
MODES = {"pipelined": "pipelined", "one by one": "one_by_one"}


def row(cells):
    return f"| {' | '.join(cells)} |"


def cells(number, d):
    """A row a cell: published, then each mode, with half the distance of its rounds, and ratios to the first row."""
    first = ["partitions"] if number == 4 else ["replicas", "min.isr", "acks"]
    out = [row([*first, "published", "ratio", *(x for m in MODES for x in (m, "ratio"))]), "|" + "---:|" * (len(first) + 6)]
    for c in d["cells"]:
        line = [str(c[k]) for k in (["partitions"] if number == 4 else ["rf", "min_isr", "acks"])]
        line += [f"{c['published']:,}", f"{c['published_ratio']:.2f}"] if c["published"] else ["–", "–"]
        for m in MODES.values():
            r = c[m]
            line += [f"{r['records_per_s']:,} ±{(r['high'] - r['low']) / r['records_per_s'] * 50:.0f} %", f"{r['ratio']:.2f}"] if r else ["–", "–"]
        out.append(row(line))
    return out


def conclusions(d):
    said = {}
    for c in d["conclusions"]:
        n = {word: sum(p["verdict"] == v for p in c["pairs"]) for word, v in (("yes", "holds"), ("noise", "within noise"), ("no", "does not hold"))}
        said.setdefault(c["claim"], {})[c["mode"]] = f"{c['verdict']} ({', '.join(f'{k} {word}' for word, k in n.items() if k)})"
    return [row(["what was concluded", *MODES]), "|---|---|---|", *(row([claim, *(v.get(m, "–") for m in MODES)]) for claim, v in said.items())]


def kills(d):
    out = [row(["case", "", "acked/s (published)", "sent", "failed (of them stored)", "lost", "doubled", "met by records"]), "|---|---|---:|---:|---:|---:|---:|---|"]
    for c in d["cases"]:
        met = "; ".join(f"{SEEN.get(k, k)} {v['met']:,}" for k, v in c["errors"].items())
        published = f" ({c['published']:,})" if c["published"] else ""
        out.append(row([c["name"], c["mode"], f"{c['records_per_s']:,}{published}", f"{c['sent']:,}", f"{c['failed']:,} ({c['failed_but_stored']:,})", f"{c['lost']:,}",
                        f"{c['doubled']:,}", met or "nothing"]))
    return out


def main():
    if len(sys.argv) != 2 or not Path(sys.argv[1]).is_dir():
        sys.exit(__doc__)
    page = PAGE.read_text()
    for number in range(1, 6):
        source = Path(sys.argv[1]) / f"{number}.json"
        if not source.exists():
            continue
        d = json.loads(source.read_text())
        text = kills(d) if number == 5 else [*cells(number, d), "", *conclusions(d)]
        shutil.copy(source.with_suffix(".svg"), HERE / f"scenario-{number}.svg")
        picture = f'<img src="benchmark/scenario-{number}.svg" width="800" alt="scenario {number} as a chart">'
        begin, end = f"<!-- scenario {number} -->\n", "<!-- end -->"
        page = re.sub(re.escape(begin) + ".*?" + end, lambda _, b=begin, t=text, p=picture: b + "\n".join([*t, "", p, ""]) + end, page, count=1, flags=re.S)
    PAGE.write_text(page)


main()
