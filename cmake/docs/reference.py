#!/usr/bin/env python3
"""Writes the reference pages that come from the tables of properties: examples/guide/config-client.md, config-broker.md, and the table of
migrating-from-librdkafka.md. Asks the programs of a build; tests/docs checks that what is committed is current.

  cmake/docs/reference.py [--build build] [--check]
  cmake/docs/reference.py --librdkafka librdkafka.so.1   learns the names of another version of librdkafka (into librdkafka.json beside this script)
"""
import argparse
import ctypes
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
GUIDE = ROOT / "examples/guide"
LIBRDKAFKA = Path(__file__).with_name("librdkafka.json")


def table_of(build, *command):
    """The lines of JSON that a program of the build prints, as objects."""
    out = subprocess.run([str(build / "bin" / command[0]), *command[1:]], check=True, capture_output=True, text=True, timeout=60).stdout
    return [json.loads(line) for line in out.splitlines()]


# What the table cannot tell by asking.
SPECIAL = {"security.protocol": "`plaintext` only: TLS and SASL are not in this build yet"}
SAME_MEANING = {"largest": "latest"}


def cell(text):
    return (text or "").replace("|", "\\|").replace("<", "&lt;")


def names(text):
    return ", ".join(f"`{name}`" for name in (text or "").replace(" ", "").split(",") if name)


def rows(header, lines):
    return [f"| {' | '.join(header)} |", "|" + "---|" * len(header), *(f"| {' | '.join(line)} |" for line in lines)]


def may_be(p):
    """Type and range in one cell."""
    if p["type"] == "boolean" or p["range"] in ("", "text"):
        return p["type"]
    if p["type"] in ("choice", "list"):
        return cell(", ".join(p["range"].replace(" ", "").split(",")))
    return cell(f"{p['type']}, {p['range']}")


def client_page(build):
    properties = table_of(build, "kc", "config", "explain", "--json")
    out = ["# The client's properties", "",
           "Made from the library's own table (`kc config explain`), which also answers `kc config explain NAME...` and checks every value: an unknown name is an",
           "error that names the nearest. Names of Apache Kafka's clients, of librdkafka and of the old producers all work; what stands under *also* is another name",
           "for the same. `kc_config_set` sets them in C, `--set NAME=VALUE` in `kc`.", ""]
    for scope, head in (("client", "Clients"), ("producer", "Producers"), ("consumer", "Consumers")):
        out += [f"## {head}", ""]
        lines = [[f"`{p['name']}`" + (f"<br>also: {names(p['aliases'])}" if p["aliases"] else ""), may_be(p), f"`{p['default']}`" if p["default"] else "none", cell(p["text"])]
                 for p in properties if p["scope"] == scope]
        out += [*rows(["name", "value", "default", "meaning"], lines), ""]
    return "\n".join(out)


def broker_page(build):
    properties = table_of(build, "kbroker", "explain", "--json")
    used = [p for p in properties if not p["ignored"]]
    out = ["# The broker's and topics' properties", "",
           "Made from the broker's own table (`kbroker explain`). They go into `server.properties`, or behind `--set` of `kbroker run` and `kbroker cluster`; a topic's",
           "behind `--config` of `kc topic create` and `kc config alter topic`. Names, units and defaults are Apache Kafka 4.4's where the text does not say otherwise. An",
           "unknown name is an error that names the nearest.", "",
           "## Topics", "", "What a topic does not set comes from the broker's property in the last column, the first of them that is set.", ""]
    out += rows(["name", "value", "default", "meaning", "broker's"],
                [[f"`{p['name']}`", may_be(p), f"`{p['default']}`" if p["default"] else "none", cell(p["text"]), names(re.sub(r":\d+", "", p["synonyms"] or ""))] for p in used if p["scope"] == "topic"])
    out += ["", "## Brokers", "", "*Dynamic*: `kc config alter broker` changes it while the broker runs.", ""]
    out += rows(["name", "value", "default", "meaning"],
                [[f"`{p['name']}`" + ("<br>dynamic" if p["dynamic"] else ""), may_be(p), f"`{p['default']}`" if p["default"] else "none", cell(p["text"])] for p in used if p["scope"] == "broker"])
    out += ["", "## Without effect here", "", "Known to Apache Kafka 4.4, checked for their type, accepted with one warning:", "",
            ", ".join(f"`{p['name']}`" for p in properties if p["ignored"]) + ".", ""]
    return "\n".join(out)


class Library:
    """libkclient.so of the build: what its kc_config_set says to a name."""

    def __init__(self, build):
        self.lib = ctypes.CDLL(str(build / "lib" / "libkclient.so"))
        for name in ("kc_config_new", "kc_error_message"):
            getattr(self.lib, name).restype = ctypes.c_void_p
        self.config = ctypes.c_void_p(self.lib.kc_config_new())
        self.own = {}
        for p in table_of(build, "kc", "config", "explain", "--json"):
            for name in [p["name"], *filter(None, p["aliases"].replace(" ", "").split(","))]:
                self.own[name] = p

    def says(self, name, value):
        """(code, message) of setting it."""
        error = ctypes.c_void_p()
        code = self.lib.kc_config_set(self.config, name.encode(), value.encode(), ctypes.byref(error))
        if not error:
            return code, ""
        text = ctypes.string_at(self.lib.kc_error_message(error)).decode()
        self.lib.kc_error_free(error)
        return code, text


def counterpart(library, p):
    """What becomes of a property of librdkafka's here, and where its default is another one."""
    name = p["name"]
    if name in SPECIAL:
        return SPECIAL[name], ""
    mine = library.own.get(name)
    if mine:
        what = "the same name" if mine["name"] == name else f"is `{mine['name']}`"
        mine_default = "true" if mine["default"] == "1" and p["default"] in ("true", "false") else mine["default"]
        there = SAME_MEANING.get(p["default"], p["default"])
        differs = p["default"] != "" and mine_default.removesuffix(".0") != there
        return what, f"`{mine_default or 'none'}`, there `{p['default']}`" if differs else ""
    if name.endswith("_cb"):
        return "no property: see the functions", ""
    code, text = library.says(name, p["default"] or "x")
    if code == 0:
        return "accepted, without effect", ""
    if "has no" in text or "unknown" in text or "no property" in text or "did you mean" in text:
        return "no counterpart", ""
    return "refused: " + cell(text.split(": ", 1)[-1]), ""


def librdkafka_table(build):
    known = json.loads(LIBRDKAFKA.read_text())
    library = Library(build)
    lines = []
    for p in known["properties"]:
        if p["alias_of"] and p["name"] not in library.own:
            continue
        what, default = counterpart(library, p)
        lines.append([f"`{p['name']}`", {"P": "producer", "C": "consumer", "*": ""}[p["scope"]], what, default])
    return [f"All {len(lines)} of librdkafka {known['version']}, as `kc_config_set` takes them. The last column: where the default is another one.", "",
            *rows(["librdkafka", "of", "here", "default"], lines), ""]


def learn(library):
    """The names, scopes and defaults that a librdkafka prints of itself, for librdkafka.json. Nothing of its texts."""
    lib, c = ctypes.CDLL(library), ctypes.CDLL(None)
    lib.rd_kafka_version_str.restype = ctypes.c_char_p
    c.fopen.restype = ctypes.c_void_p
    with tempfile.NamedTemporaryFile() as f:
        to = ctypes.c_void_p(c.fopen(f.name.encode(), b"w"))
        lib.rd_kafka_conf_properties_show(to)
        c.fclose(to)
        text = Path(f.name).read_text()
    seen, found = set(), []
    for line in text.splitlines():
        parts = [x.strip() for x in line.split("|")]
        if len(parts) < 6 or parts[1] not in ("*", "P", "C") or parts[0] in seen:
            continue
        seen.add(parts[0])
        alias = re.match(r"Alias for `([^`]*)`", parts[5])
        found.append({"name": parts[0], "scope": parts[1], "default": parts[3] if not parts[0].startswith("builtin") else "", "alias_of": alias[1] if alias else ""})
    LIBRDKAFKA.write_text("{" + f'"version": "{lib.rd_kafka_version_str().decode()}", "properties": [\n' + ",\n".join(json.dumps(p) for p in found) + "\n]}\n")


def with_table(page, lines):
    """The page with what stands between its marks replaced."""
    text = page.read_text()
    return re.sub(r"(<!-- made by cmake/docs/reference.py -->\n).*?(<!-- end -->)", lambda m: m[1] + "\n".join(lines) + "\n" + m[2], text, flags=re.S)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when a page is not current")
    parser.add_argument("--librdkafka", help="a librdkafka.so.1 to learn names of")
    options = parser.parse_args()
    if options.librdkafka:
        learn(options.librdkafka)
    build = options.build.resolve()
    migrating = GUIDE / "migrating-from-librdkafka.md"
    wanted = {GUIDE / "config-client.md": client_page(build), GUIDE / "config-broker.md": broker_page(build)}
    if migrating.exists():
        wanted[migrating] = with_table(migrating, librdkafka_table(build))
    stale = [page for page, text in wanted.items() if not page.exists() or page.read_text() != text]
    for page in stale:
        if options.check:
            print(f"{page.relative_to(ROOT)} is not current: cmake/docs/reference.py writes it anew")
        else:
            page.write_text(wanted[page])
    return 1 if stale and options.check else 0


if __name__ == "__main__":
    sys.exit(main())
