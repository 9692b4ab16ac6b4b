"""Checks of pages that run nothing of them: links, files and options that they name, lists that must be whole, pages that are generated."""
import fnmatch
import functools
import re
import subprocess
import sys
import xml.dom.minidom

import pages
from pages import COMMANDS, PROGRAMS, ROOT

README_LINES_MAX = 200


def lists_are_whole():
    """Each page with commands is run here or elsewhere; each block that is said to be run elsewhere names who does it."""
    for page in pages.found():
        listed = pages.is_run(page) or page in pages.ELSEWHERE
        for b in pages.blocks(page):
            if b.language in COMMANDS and not listed:
                yield f"{page}:{b.line}: commands that no test runs: put the page into a list of tests/docs/pages.py"
            where = b.asks("elsewhere")
            if where is not None and not (where and (ROOT / where.split()[0]).exists()):
                yield f"{page}:{b.line}: run elsewhere, but there is no {where or 'name'}"


def programs_are_compiled():
    """A program that a page shows is a file of that page's commands, or stands in a file of the tree, line for line."""
    for page in filter(pages.is_run, pages.found()):
        for b in pages.blocks(page):
            if b.language not in PROGRAMS or b.asks("file"):
                continue
            source = b.asks("from")
            if not source:
                yield f"{page}:{b.line}: a program that no test compiles: <!-- file: NAME --> or <!-- run: from PATH --> before it"
            elif not (ROOT / source).exists():
                yield f"{page}:{b.line}: from {source}, which is not there"
            else:
                lines = {" ".join(line.split()) for line in (ROOT / source).read_text().splitlines()}
                for line in b.text.splitlines():
                    if line.strip() and line.strip() not in ("…", "...") and " ".join(line.split()) not in lines:
                        yield f"{page}:{b.line}: {source} has no line {line.strip()!r}"


def links_lead_somewhere():
    """Links between pages, to headings, and to files; paths in code spans; pictures."""
    for page in pages.found():
        folder, text = (ROOT / page).parent, pages.prose(page)
        for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "", text)) + re.findall(r'<img[^>]* src="([^"]+)"', text):
            if re.match(r"[a-z]+:", target):
                continue
            path, _, anchor = target.partition("#")
            file = (folder / path).resolve() if path else ROOT / page
            if not file.exists():
                yield f"{page}: links to {target}, which is not there"
            elif anchor and file.suffix == ".md" and anchor not in pages.anchors(file.relative_to(ROOT)):
                yield f"{page}: links to {target}: no such heading"
        for span in re.findall(r"`((?:client|broker-ref|bindings|tests|examples|include|cmake)/[\w./*{},-]*)`", text):
            if not list(ROOT.glob(re.sub(r"\{.*?\}", "*", span.rstrip("/")))):
                yield f"{page}: names {span}, which is not there"


class Options:
    """The options of kc and kbroker, asked of the programs themselves."""

    def __init__(self, build):
        self.build = build

    @functools.lru_cache(None)
    def help(self, words):
        r = subprocess.run([str(self.build / "bin" / words[0]), *words[1:], "--help"], capture_output=True, text=True, timeout=60)
        return r.stdout if r.returncode == 0 else ""

    @functools.lru_cache(None)
    def commands(self, words):
        """The sub-commands that a help lists: `  create     create topics`."""
        return set(re.findall(r"^  ([a-z][a-z-]+) ", self.help(words).split("examples:")[0], re.M)) | set(re.findall(r"^(?:usage:|      ) kbroker ([a-z]+)", self.help(words), re.M))

    def known(self, words):
        return set(re.findall(r"(?<![\w-])--?[A-Za-z][\w-]*", self.help(words))) | {"--help", "-h", "--version"}


def commands_in(line):
    """Each `kc …` or `kbroker …` of a shell line or code span, as words, up to the next pipe, `;`, `&` or redirection."""
    line = re.sub(r"'[^']*'|\"[^\"]*\"", "QUOTED", re.sub(r"\s#.*$", "", line))
    for m in re.finditer(r"(?:^|[\s|;&(`/])(kc|kbroker) ([^|;&<>)`]*)", line):
        yield [m[1], *m[2].split()]


def options_exist(build):
    """Each option of kc and kbroker that a page names is one of that command."""
    options = Options(build)
    for page in pages.found():
        shell = [(b.line + i, line) for b in pages.blocks(page) if b.language in COMMANDS for i, line in enumerate(b.text.replace("\\\n", "  ").splitlines())]
        spans = [(0, span) for span in re.findall(r"`((?:kc|kbroker) [^`]*)`", pages.prose(page))]
        for number, line in shell + spans:
            for words in commands_in(line):
                command = (words[0],)
                for word in words[1:]:
                    if word not in options.commands(command):
                        break
                    command += (word,)
                known = options.known(command)
                for word in words[1:]:
                    for name in re.findall(r"^(--[a-z][\w-]*|-[A-Za-z])", word):
                        if name not in known:
                            yield f"{page}{f':{number}' if number else ''}: {' '.join(command)} has no option {name}"


def file_maps_are_whole():
    """client/README.md and broker-ref/README.md name every source file and no other."""
    for base in ("client", "broker-ref"):
        table = [line for line in (ROOT / base / "README.md").read_text().splitlines() if line.startswith("|")]
        files = {p.name for p in (ROOT / base).rglob("*.[ch]")}
        named = set()
        for cell in (line.split("|")[1] for line in table):
            last = ""
            for word in re.findall(r"`([^` ]+)`", cell):
                word = word.rsplit("/", 1)[-1]
                stem = last if word.startswith(".") else word  # `x.h` `.c`
                word = stem.rsplit(".", 1)[0] + word if word.startswith(".") else word
                last = stem
                braces = re.match(r"(.*)\{(.*)\}(.*)", word)
                for name in [braces[1] + x + braces[3] for x in braces[2].split(",")] if braces else [word]:
                    hits = {f for f in files if fnmatch.fnmatch(f, name)}
                    if not hits and re.search(r"\.[ch*]$", name):
                        yield f"{base}/README.md names {name}, which is not there"
                    named |= hits
        stems = {n.rsplit(".", 1)[0] for n in named}  # a header may stand with its .c file
        for f in sorted(files - named):
            if not (f.endswith(".h") and f[:-2] in stems):
                yield f"{base}/README.md does not name {f}"


def generated_pages_are_current(build):
    """What cmake/docs/reference.py writes is what is committed."""
    r = subprocess.run([sys.executable, str(ROOT / "cmake/docs/reference.py"), "--check", "--build", str(build)], capture_output=True, text=True, timeout=120)
    if r.returncode:
        yield (r.stdout + r.stderr).strip()


def man_pages_are_clean(build):
    """Each man page of the build is formatted without a warning, by both formatters."""
    made = sorted((build / "man").glob("man*/*.[0-9]"))
    if len(made) < 30:
        yield f"only {len(made)} man pages in {build}/man: ninja man"
    for page in made:
        lint = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", str(page)], capture_output=True, text=True, timeout=60)
        groff = subprocess.run(["groff", "-man", "-T", "utf8", "-ww", "-rLL=100n", str(page)], capture_output=True, text=True, timeout=60)
        for text in (lint.stdout, groff.stderr):
            if text.strip():
                yield text.strip()


def pictures_are_current():
    """The pictures of the guide are what their script draws, and XML."""
    r = subprocess.run([sys.executable, str(ROOT / "examples/guide/pictures/make.py"), "--check"], capture_output=True, text=True, timeout=60)
    if r.returncode:
        yield (r.stdout + r.stderr).strip()
    for picture in (ROOT / "examples/guide").rglob("*.svg"):
        xml.dom.minidom.parse(str(picture))


def the_reference_has_no_gaps(build):
    """Doxygen finds a comment for every public name."""
    r = subprocess.run([sys.executable, str(ROOT / "cmake/docs/api.py"), "--out", str(build / "docs")], capture_output=True, text=True, timeout=300)
    if r.returncode:
        yield (r.stdout + r.stderr).strip()


def tests_that_pages_name_are_there():
    """A claim that names a test (a code span of four words or more) names one of tests/scenario or of the bindings."""
    sources = [*ROOT.glob("tests/scenario/*.py"), *ROOT.glob("tests/interop/*.py"), *ROOT.glob("bindings/python/tests/*.py")]
    known = {name for source in sources for name in re.findall(r"^(?:async )?def (\w+)", source.read_text(), re.M)}
    for page in ("examples/guide/choosing.md",):
        for name in re.findall(r"`([a-z0-9]+(?:_[a-z0-9]+){3,})`", pages.prose(page)):
            if name not in known and not name.startswith("kc_"):
                yield f"{page}: names the test {name}, which is not there"


def functions_that_pages_name_are_there():
    """Each kc_… and KC_… in a code span of the guide is in a public header."""
    known = set(re.findall(r"\bkc_\w+|\bKC_\w+", "".join(h.read_text() for h in (ROOT / "include/kclient").glob("*.h"))))
    options = set(re.findall(r"\bKC_\w+", "".join(p.read_text() for p in [ROOT / "CMakeLists.txt", *ROOT.glob("cmake/*.cmake")])))
    for page in filter(pages.is_run, pages.found()):
        if not page.startswith(("examples/", "README")):
            continue
        for span in re.findall(r"`([^`\n]+)`", pages.prose(page)):
            for name in re.findall(r"\b(kc_\w+|KC_\w+)", span):
                if name not in known | options and not (name.endswith("_") and any(k.startswith(name) for k in known)):
                    yield f"{page}: names {name}, which no public header has"


def readme_is_short():
    lines = (ROOT / "README.md").read_text().count("\n")
    if lines > README_LINES_MAX:
        yield f"README.md has {lines} lines; {README_LINES_MAX} are the most: move something into the guide"


def all_of_them(build):
    """(name, what is wrong or "") of each check."""
    for check, args in ((lists_are_whole, ()), (programs_are_compiled, ()), (links_lead_somewhere, ()), (options_exist, (build,)), (file_maps_are_whole, ()), (generated_pages_are_current, (build,)), (man_pages_are_clean, (build,)), (tests_that_pages_name_are_there, ()), (functions_that_pages_name_are_there, ()),
                        (pictures_are_current, ()), (the_reference_has_no_gaps, (build,)),
                        (readme_is_short, ())):
        yield check.__name__.replace("_", " "), "\n  ".join(check(*args))
