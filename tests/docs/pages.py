"""Which pages there are, and what stands in them: fenced blocks, the notes to the runner before them, headings, links, code spans."""
import re
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent

# Pages whose commands are run here, and those whose commands something else runs. A page with commands that is in neither list is a failure.
RUN = ["README.md", "examples/guide/*.md", "examples/guide/*/*.md", "client/README.md", "broker-ref/README.md", "bindings/README.md", "tests/*/README.md"]
ELSEWHERE = {"bindings/python/README.md": "bindings/python/test.sh", "bindings/go/README.md": "bindings/go/test.sh", "CHANGELOG.md": "nothing: it has no commands"}
COMMANDS = ("sh", "bash", "console", "shell")
PROGRAMS = ("c", "python", "go")


class Block:
    """A fenced block: its language, text, first line's number, and the note `<!-- run: … -->` or `<!-- file: … -->` before it."""

    def __init__(self, language, text, line, note):
        self.language, self.text, self.line, self.note = language, text, line, note

    def asks(self, word):
        """What the note says of `word`: `<!-- run: until, exit 1 -->`.asks("exit") is "1"; "" for a bare word; None when it says nothing."""
        for part in self.note.split(","):
            if part.strip() == word or part.strip().startswith(word + " "):
                return part.strip()[len(word):].strip()
        return None


def found():
    """Every markdown page of the tree, as a path below ROOT; what builds and downloads left behind is not looked at."""
    skip = {"build", "node_modules", "venv", ".venv", ".git", "site-packages", ".pytest_cache"}
    return sorted(str(p.relative_to(ROOT)) for p in ROOT.rglob("*.md")
                  if not any(part in skip or part.startswith("build-") for part in p.relative_to(ROOT).parts))


def is_run(page):
    return any(fnmatch(page, pattern) for pattern in RUN) and page not in ELSEWHERE


def blocks(page):
    """The fenced blocks of a page, in order."""
    out, note, inside = [], "", None
    for number, line in enumerate((ROOT / page).read_text().splitlines(), 1):
        if inside is not None:
            if line.rstrip() == "```":
                out.append(Block(inside[0], "".join(x + "\n" for x in inside[1]), inside[2], inside[3]))
                inside, note = None, ""
            else:
                inside[1].append(line)
        elif line.startswith("```"):
            inside = (line[3:].strip(), [], number + 1, note)
        elif m := re.fullmatch(r"<!-- (run|file): (.*?) -->", line.strip()):
            note = m[2] if m[1] == "run" else f"file {m[2]}"
        elif line.strip():
            note = ""
    if inside is not None:
        raise AssertionError(f"{page}:{inside[2]}: a block that does not end")
    return out


def prose(page):
    """The page without its fenced blocks."""
    return re.sub(r"^```.*?^```\s*$", "", (ROOT / page).read_text(), flags=re.S | re.M)


def anchors(page):
    """The headings of a page as the anchors that links name."""
    heads = re.findall(r"^#+ (.*)$", prose(page), re.M)
    return {re.sub(r"[^\w\- ]", "", h.lower()).strip().replace(" ", "-") for h in heads}
