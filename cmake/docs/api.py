#!/usr/bin/env python3
"""Makes the API reference of the public headers by Doxygen: whatever lacks a comment is an error. Called by the build target docs and by tests/docs.

  cmake/docs/api.py [--doxygen doxygen] --out build/docs     out/html/index.html
"""
import argparse
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SETTINGS = {
    "PROJECT_NAME": "libkclient", "PROJECT_BRIEF": '"C client library for the Apache Kafka protocol"', "INPUT": f'"{ROOT}/include/kclient" "{{out}}/main.md"',
    "USE_MDFILE_AS_MAINPAGE": '"{out}/main.md"', "OUTPUT_DIRECTORY": '"{out}"', "STRIP_FROM_PATH": f'"{ROOT}/include"', "STRIP_FROM_INC_PATH": f'"{ROOT}/include"',
    "EXAMPLE_PATH": f'"{ROOT}/examples"', "FILE_PATTERNS": "*.h *.md", "OPTIMIZE_OUTPUT_FOR_C": "YES", "TYPEDEF_HIDES_STRUCT": "YES", "JAVADOC_AUTOBRIEF": "YES",
    "MACRO_EXPANSION": "YES", "EXPAND_ONLY_PREDEF": "YES", "PREDEFINED": "KC_API=", "GENERATE_LATEX": "NO", "HAVE_DOT": "NO", "QUIET": "YES", "WARNINGS": "YES", "WARN_IF_UNDOCUMENTED": "YES",
    "WARN_IF_DOC_ERROR": "YES", "WARN_NO_PARAMDOC": "NO", "WARN_AS_ERROR": "NO", "EXTRACT_ALL": "NO", "SORT_MEMBER_DOCS": "NO", "ALPHABETICAL_INDEX": "YES", "GENERATE_TREEVIEW": "YES",
    "DISABLE_INDEX": "NO", "VERBATIM_HEADERS": "YES", "AUTOLINK_SUPPORT": "YES", "MARKDOWN_SUPPORT": "YES", "SEARCHENGINE": "YES", "DISTRIBUTE_GROUP_DOC": "YES",
}


def main_page():
    """The reference's first page: the guide's index, its links led to where a reader of the reference finds them."""
    text = (ROOT / "examples/guide/api.md").read_text()
    text = re.sub(r"^<!--.*?-->\n", "", text, flags=re.M)
    return re.sub(r"\[([^\]]+)\]\((?!https?:)[^)]*\)", r"\1", text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--doxygen", default="doxygen")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    out = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    (out / "main.md").write_text(main_page())
    (out / "Doxyfile").write_text("".join(f"{name} = {value.format(out=out) if '{out}' in value else value}\n" for name, value in SETTINGS.items()))
    r = subprocess.run([options.doxygen, str(out / "Doxyfile")], capture_output=True, text=True)
    warnings = [line for line in (r.stdout + r.stderr).splitlines() if line.strip()]
    print("\n".join(warnings))
    if r.returncode or warnings:
        print(f"docs: {len(warnings)} warnings; each public name needs a comment, see include/kclient", file=sys.stderr)
        return 1
    print(f"docs: {out}/html/index.html")
    return 0


if __name__ == "__main__":
    sys.exit(main())
