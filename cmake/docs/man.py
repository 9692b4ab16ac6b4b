#!/usr/bin/env python3
"""Writes the man pages: kc(1) and kbroker(1) with a page a command, from what --help says; kclient.properties(5) and kbroker.properties(5), from the
tables; libkclient(3), from the public headers. Called at build time by cmake/docs.cmake.

  cmake/docs/man.py --build build --out build/man
"""
import argparse
import json
import os
import re
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
DAY = time.strftime("%Y-%m-%d", time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))))
ENVIRONMENT = {"LC_ALL": "C.UTF-8", "PATH": os.environ.get("PATH", "")}


def roff(text):
    """Text as roff takes it: no line is a request, a hyphen is the one that is typed."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("…", "...").replace("≥", ">=").replace("≤", "<=")
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.M)


def bold(text):
    return "\\fB" + roff(text) + "\\fR"


class Page:
    def __init__(self, name, section, what, version):
        self.name, self.section = name, section
        self.lines = [f'.TH "{name.upper()}" "{section}" "{DAY}" "kclient {version}" "libkclient and kbroker"', ".ad l", ".SH NAME", f"{roff(name)} \\- {roff(what)}"]

    def head(self, title):
        self.lines.append(f".SH {title}")

    def text(self, paragraph):
        if not self.lines[-1].startswith(".SH"):
            self.lines.append(".PP")
        self.lines.append(roff(" ".join(paragraph.split())))

    def term(self, name, text):
        self.lines += [".TP", bold(name), roff(" ".join(text.split())) or "\\&"]

    def verbatim(self, lines):
        self.lines += [".PP", ".nf", ".RS 2"] if not self.lines[-1].startswith(".SH") else [".nf", ".RS 2"]
        self.lines += [roff(line) or "\\&" for line in lines] + [".RE", ".fi"]

    def write(self, out, others):
        see = [f"{name}({section})" for name, section in others if (name, section) != (self.name, self.section)]
        if see:
            self.head("SEE ALSO")
            self.lines.append(",\n".join(f"\\fB{roff(s.split('(')[0])}\\fR({s.split('(')[1]}" for s in see))
        folder = out / f"man{self.section}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{self.name}.{self.section}").write_text("\n".join(self.lines) + "\n")


class Help:
    """What --help says, in its parts: usage, paragraphs, options and other terms with their texts, examples."""

    def __init__(self, text):
        self.usage, self.parts, self.examples = [], [], []
        where = None
        for line in text.splitlines():
            if line.startswith("usage:"):
                where = "usage"
                line = line[6:]
            elif re.match(r"examples?:", line):
                where, line = "examples", line.split(":", 1)[1]
            elif where == "usage" and not line.startswith("   "):
                where = None
            if where == "usage":
                self.usage.append(line.strip())
            elif where == "examples":
                if line.strip():
                    self.examples.append(line[2:] if line.startswith("  ") else line)
            else:
                self.add(line)
        self.parts = [p for p in self.parts if p[0] == "term" or p[1].strip()]

    def add(self, line):
        term = re.match(r" {1,6}(-.*?|[a-z][a-z-]*)(?: {2,}(\S.*))?$", line) or re.match(r"  ([a-z-]{10,}) (\S.*)$", line)
        if term:
            self.parts.append(["term", term[1], term[2] or ""])
        elif line.startswith("      ") and self.parts and self.parts[-1][0] == "term":
            self.parts[-1][2] += " " + line.strip()
        elif line.strip() and self.parts and self.parts[-1][0] == "text" and self.parts[-1][1]:
            self.parts[-1][1] += "\n" + line
        else:
            self.parts.append(["text", line])
        if self.parts[-1][0] == "term" and self.parts[-1][2] == "":
            self.parts[-1][2] = " "

    def summary(self):
        first = next((p[1] for p in self.parts if p[0] == "text" and p[1].strip()), "")
        sentence = re.split(r"(?<=[^.])\.(?:\s|$)|:\s", " ".join(first.split()))[0]
        return sentence[:1].lower() + sentence[1:]


def help_of(build, words):
    r = subprocess.run([str(build / "bin" / words[0]), *words[1:], "--help"], capture_output=True, text=True, timeout=120, env=ENVIRONMENT)
    return Help(r.stdout) if r.returncode == 0 else None


def commands_below(words, page):
    """The sub-commands that a help lists: as terms (kc), or as further usages (kbroker)."""
    if f"{' '.join(words)} COMMAND" in " ".join(page.usage):
        return [p[1] for p in page.parts if p[0] == "term" and not p[1].startswith("-")]
    usages = [u.split() for u in page.usage]
    return [u[len(words)] for u in usages if u[:len(words)] == list(words) and len(u) > len(words) and re.fullmatch(r"[a-z]+", u[len(words)])] if words == ("kbroker",) else []


def walk(build, words):
    """(words, help) of a program and each of its commands."""
    page = help_of(build, words)
    if not page:
        return
    yield words, page
    for command in commands_below(words, page):
        if command != "run":  # kbroker --help is run's
            yield from walk(build, (*words, command))


def command_page(words, said, version):
    top = {("kc",): "the command line of libkclient", ("kbroker",): "a compact broker that speaks the Apache Kafka protocol"}
    page = Page("-".join(words), 1, top.get(words) or said.summary(), version)
    page.head("SYNOPSIS")
    page.verbatim(said.usage)
    page.head("DESCRIPTION")
    options = False
    for part in said.parts:
        if part[0] == "text":
            page.text(part[1])
        else:
            if part[1].startswith("-") and not options:
                page.head("OPTIONS")
                options = True
            page.term(part[1], part[2])
    if said.examples:
        page.head("EXAMPLES")
        page.verbatim(said.examples)
    page.head("EXIT STATUS")
    for code, what in (("0", "Success."), ("1", "Failure; standard error says what failed, where, why, and what to do."), ("2", "The command line is wrong.")):
        page.term(code, what)
    return page


def rows_of(build, *command):
    out = subprocess.run([str(build / "bin" / command[0]), *command[1:]], check=True, capture_output=True, text=True, timeout=120, env=ENVIRONMENT).stdout
    return [json.loads(line) for line in out.splitlines()]


def properties_page(name, what, intro, groups, version):
    page = Page(name, 5, what, version)
    page.head("DESCRIPTION")
    page.text(intro)
    for title, rows in groups:
        page.head(title)
        for p in rows:
            about = [p["type"] + (", " + p["range"].replace(",", ", ").replace(",  ", ", ") if p["range"] not in ("", p["type"]) else ""), f"default {p['default'] or 'none'}"]
            if p.get("aliases"):
                about.append("also " + p["aliases"].replace(",", ", ").replace(",  ", ", "))
            if p.get("synonyms"):
                about.append("of the broker's " + re.sub(r":\d+", "", p["synonyms"]).replace(",", ", "))
            page.term(p["name"], f"({'; '.join(about)}) {p['text']}")
    return page


def functions_of(header):
    """(name, prototype, first sentence) of each public function of a header."""
    text = header.read_text()
    for m in re.finditer(r"(?:/\*\*(?P<before>(?:(?!\*/).)*)\*/\n)?^KC_API (?P<proto>[^;]*?)\s*;(?:[ \t]*/\*\*<(?P<after>(?:(?!\*/).)*)\*/)?", text, re.S | re.M):
        proto = " ".join(m["proto"].split())
        said = " ".join(re.sub(r"^\s*\*", "", (m["before"] or m["after"] or ""), flags=re.M).split())
        yield re.search(r"(kc_\w+)\(", proto)[1], proto, re.split(r"(?<=[.:])(?<!e\.g\.) ", said)[0].rstrip(":").strip()


def library_page(version):
    page = Page("libkclient", 3, "C client library for the Apache Kafka protocol", version)
    page.head("SYNOPSIS")
    headers = [h for h in ("kclient", "producer", "consumer", "admin", "kclient_test") if (ROOT / f"include/kclient/{h}.h").exists()]
    page.verbatim([f"#include <kclient/{h}.h>" for h in headers] + ["", "cc program.c $(pkg-config --cflags --libs kclient)"])
    page.head("DESCRIPTION")
    comment = re.match(r"/\*\*(.*?)\*/", (ROOT / "include/kclient/kclient.h").read_text(), re.S)[1]
    points = re.sub(r"^\s*\* ?", "", comment, flags=re.M).split("\n- ")
    page.text("A client owns connections, metadata, memory budget and loop; producers, consumers and administrative calls attach to it. What each function does, owns "
              "and may fail with stands in the headers, and in the API reference that the build target docs makes of them. Conventions of all:")
    for point in points[1:]:
        page.lines += [".IP \\(bu 2", roff(" ".join(point.split()))]
    for h in headers:
        page.head(f'"{h.upper()}.H"')
        for name, proto, said in functions_of(ROOT / f"include/kclient/{h}.h"):
            page.lines += [".TP", roff(proto), roff(said) or "\\&"]
    return page


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    build = options.build.resolve()
    version = re.search(r"project\(kclient VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
    pages = [command_page(words, said, version) for program in ("kc", "kbroker") for words, said in walk(build, (program,))]
    client = rows_of(build, "kc", "config", "explain", "--json")
    pages.append(properties_page("kclient.properties", "what clients can be told", "The properties of libkclient: kc_config_set in C, --set NAME=VALUE in kc.",
                                 [(scope.upper() + "S", [p for p in client if p["scope"] == scope]) for scope in ("client", "producer", "consumer")], version))
    broker = [p for p in rows_of(build, "kbroker", "explain", "--json") if not p["ignored"]]
    pages.append(properties_page("kbroker.properties", "what brokers and topics can be told",
                                 "The properties of server.properties, which kbroker reads, and those of topics (--config of kc topic create and kc config alter). Names of "
                                 "Apache Kafka that have no effect here are accepted with one warning; kbroker explain --json lists them.",
                                 [("TOPICS", [p for p in broker if p["scope"] == "topic"]), ("BROKERS", [p for p in broker if p["scope"] == "broker"])], version))
    pages.append(library_page(version))
    top = [("kc", 1), ("kbroker", 1), ("libkclient", 3), ("kclient.properties", 5), ("kbroker.properties", 5)]
    for page in pages:
        below = [(p.name, 1) for p in pages if p.section == 1 and p.name.startswith(page.name + "-") and p.name.count("-") == page.name.count("-") + 1]
        page.write(options.out, below + top)
    print(f"{len(pages)} man pages in {options.out}")


if __name__ == "__main__":
    main()
