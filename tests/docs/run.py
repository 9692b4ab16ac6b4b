#!/usr/bin/env python3
"""Runs the commands of the pages. How a page is written for it: tests/docs/README.md. Called by run.sh; --help tells the rest."""
import argparse
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import checks
import pages
from compare import differs
from pages import COMMANDS, ROOT

BUILD = Path(os.environ.get("KC_BUILD", ROOT / "build")).resolve()
HERE = Path(__file__).resolve().parent
PYTHON_PACKAGES = ("pytest", "mypy", "pytest-xdist")  # as bindings/python/test.sh has them, so that one environment serves both
LIMIT_S = 300  # of one page: generous, for slow machines


class Failure(Exception):
    """A page does not do what it says: where, and how it differs."""


def isolation():
    """How to begin a command in a network and a process namespace of its own, [] where the machine does not allow it."""
    for extra in ([], ["--map-root-user"]):
        begin = ["unshare", *extra, "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
        try:
            if subprocess.run([*begin, "true"], capture_output=True, timeout=30).returncode == 0:
                return begin
        except (OSError, subprocess.TimeoutExpired):
            pass
    return []


def is_background(command):
    """A broker that is put into the background: `kbroker run … &`, whatever comment stands behind."""
    return re.search(r"\bkbroker (run|cluster --nodes)\b.*[^&>]&\s*(#.*)?$", command)


def script(block):
    """The block's lines as bash runs them: waits behind brokers in the background, `# fails` checked."""
    out, lines = [], block.text.replace("\\\n", "\\\0").splitlines()
    for line in lines:
        line = line.replace("\\\0", "\\\n")
        if m := re.search(r"\s# fails\b.*$", line):
            out.append(f"if {{ {line[:m.start()]}\n}}; then docs_fails {line[:m.start()].strip()!r}; fi")
        else:
            out.append(line)
        if is_background(line):
            out.append("docs_ready $!")
    return "\n".join(out) + "\n"


def python_of_tree():
    """The interpreter of a virtual environment with the Python package of this tree in it: the one of bindings/python/test.sh, built where it is not current."""
    cache = Path(os.environ.get("KC_CACHE", Path.home() / ".cache/kclient"))
    folder = Path(os.environ.get("KC_DOCS_PYTHON", cache / f"python-{sys.version_info[0]}.{sys.version_info[1]}"))
    r = subprocess.run([str(ROOT / "bindings/python/venv.sh"), str(folder), *PYTHON_PACKAGES], capture_output=True, text=True)
    if r.returncode:
        raise Failure(f"bindings/python/venv.sh failed:\n{r.stdout}{r.stderr}")
    return folder / "venv/bin/python"


def wants_python(page):
    return any(b.asks("file") and b.asks("file").endswith(".py") or b.language in COMMANDS and "python" in b.text for b in pages.blocks(page))


class Session:
    """The shell of one page: every block runs in it, in a fresh folder that has the tree's folders in it as links."""

    alive = set()  # of all pages: an interrupted run ends what they left running

    def __init__(self, begin, folder, python=None):
        self.out, self.work, temporary, programs = folder / "out", folder / "work", folder / "tmp", folder / "bin"
        for part in (self.out, self.work, temporary, programs):
            part.mkdir()
        if python:  # it alone, and nothing else of its environment: that has a ninja of its own
            (programs / "python").write_text(f'#!/bin/sh\nexec "{python}" "$@"\n')
            (programs / "python").chmod(0o755)
        for entry in ROOT.iterdir():
            if not entry.name.startswith(".") and not entry.name.startswith("build"):
                (self.work / entry.name).symlink_to(entry)
        (self.work / "build").symlink_to(BUILD)
        env = {**os.environ, "PATH": f"{BUILD}/bin:{programs}:{os.environ['PATH']}", "DOCS_OUT": str(self.out), "KC_BUILD": str(BUILD), "LC_ALL": "C.UTF-8", "TZ": "UTC",
               "COLUMNS": "100", "HOME": str(self.work), "TMPDIR": str(temporary)}
        env.setdefault("KC_CACHE", str(Path.home() / ".cache/kclient"))
        self.isolated = bool(begin)
        self.p = subprocess.Popen([*begin, "bash", "--norc"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=self.work, env=env,
                                  start_new_session=True, text=True)
        Session.alive.add(self)
        self.count, self.end = 0, time.monotonic() + LIMIT_S
        self.tell(f". {HERE}/session.sh")

    def tell(self, line):
        self.p.stdin.write(line + "\n")
        self.p.stdin.flush()

    def run(self, text):
        """What the commands print, and how they end: None when the shell was ended by a command that failed."""
        self.count += 1
        name = self.out / f"{self.count:04}"
        (name.with_suffix(".sh")).write_text(text)
        # A block's output is whole once its own commands have ended; what a background program says later goes to the same file and is not looked at.
        # The shell's own words on jobs ("Killed …") are not the programs': they go nowhere.
        try:
            self.tell(f"eval \"$(cat {name}.sh)\" >{name}.out 2>&1 </dev/null; echo $? >{name}.rc.new; mv {name}.rc.new {name}.rc")
        except BrokenPipeError:
            pass
        while not name.with_suffix(".rc").exists():
            if self.p.poll() is not None or time.monotonic() > self.end:
                time.sleep(0.05)
                break
            time.sleep(0.01)
        rc = name.with_suffix(".rc").read_text().strip() if name.with_suffix(".rc").exists() else None
        out = name.with_suffix(".out").read_text(errors="replace") if name.with_suffix(".out").exists() else ""
        if rc is None and self.p.poll() is None:
            out += f"\ndocs: not done {LIMIT_S} s after the page's begin"
        return out, rc

    def close(self):
        """Ends what the page left running: the shell's group, or, with a namespace, everything in it."""
        for sig in (signal.SIGKILL,) if self.isolated else (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self.p.pid, sig)
            except ProcessLookupError:
                break
            try:
                self.p.wait(5)
                time.sleep(0.05)
            except subprocess.TimeoutExpired:
                pass
        self.p.stdin.close()
        self.p.wait()
        Session.alive.discard(self)


def steps(page):
    """The page's blocks as (block of commands, block of output or None), and the files that it shows, in order."""
    all_blocks = pages.blocks(page)
    for i, b in enumerate(all_blocks):
        follows = all_blocks[i + 1] if i + 1 < len(all_blocks) and all_blocks[i + 1].language == "text" else None
        yield b, follows


def run_block(page, session, block, said):
    """What it printed. Repeated for a minute, where its note asks for it, until it says what the page says (--update: which may be nothing yet)."""
    end = time.monotonic() + 60
    while True:
        begun = time.monotonic()
        out, rc = session.run(script(block))
        if rc is None:
            raise Failure(f"{page}:{block.line}: a command failed; the block and its output:\n{block.text}--\n{out}")
        wrong = differs(said.text, out, block.asks("numbers") is not None) if said else None
        if not wrong or block.asks("until") is None or not said.text or time.monotonic() > end:
            return out, wrong
        time.sleep(max(0.1, time.monotonic() - begun))


def run_page(page, begin, update=False, verbose=False):
    """Runs a page. Returns how many blocks of commands it has; Failure says what is wrong. update: changed outputs as [(block, text)]."""
    folder, ran, changed = Path(tempfile.mkdtemp(prefix="kc-docs-")), 0, []
    session = Session(begin, folder, python_of_tree() if wants_python(page) else None)
    try:
        for block, said in steps(page):
            if block.asks("file"):
                (session.work / block.asks("file")).write_text(block.text)
            if block.language not in COMMANDS or block.asks("elsewhere") is not None:
                continue
            start = time.monotonic()
            out, wrong = run_block(page, session, block, said)
            ran += 1
            if verbose:
                print(f"{page}:{block.line}: {time.monotonic() - start:.1f} s", flush=True)
            if wrong and update:
                changed.append((said, out))
            elif wrong:
                raise Failure(f"{page}:{said.line}: the output is another one\n{wrong}")
    finally:
        session.close()
        shutil.rmtree(folder, ignore_errors=True)
        if changed:
            write_back(page, changed)
    return ran


def write_back(page, changed):
    """Puts outputs into the page, from the last to the first so that line numbers hold."""
    lines = (ROOT / page).read_text().splitlines()
    for said, out in reversed(changed):
        old = said.text.count("\n")
        lines[said.line - 1:said.line - 1 + old] = [line.rstrip() for line in out.strip("\n").splitlines()]
    (ROOT / page).write_text("\n".join(lines) + "\n")
    print(f"{page}: {len(changed)} outputs written")


def default_port_is_free():
    """Without namespaces the pages' own port has to be free: says so, rather than to fail strangely."""
    with socket.socket() as s:
        try:
            s.bind(("127.0.0.1", 9092))
        except OSError:
            raise Failure("127.0.0.1:9092 is taken, and this machine allows no network namespace (unshare): end what listens there") from None


def attempt(page, begin, options):
    start = time.monotonic()
    try:
        if not begin:
            default_port_is_free()
        ran = run_page(page, begin, options.update, options.verbose)
        return page, f"ok    {page}: {ran} blocks, {time.monotonic() - start:.1f} s", True
    except (Failure, AssertionError) as e:
        return page, f"FAILED {e}", False


def interrupted(number, _frame):
    for session in list(Session.alive):
        try:
            os.killpg(session.p.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    os._exit(128 + number)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pages", nargs="*", help="below the repository's root; without any: all, and the checks of links, options and generated pages")
    parser.add_argument("--verbose", action="store_true", help="say how long each block took")
    parser.add_argument("--update", action="store_true", help="write what was printed into the pages")
    parser.add_argument("--no-namespaces", action="store_true", help="as on a machine that allows none: one page at a time, on ports that must be free")
    parser.add_argument("--jobs", type=int, default=max(2, (os.cpu_count() or 2)), help="pages at a time, where each has a network of its own")
    options = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupted)
    begin = [] if options.no_namespaces else isolation()
    wanted = options.pages or [p for p in pages.found() if pages.is_run(p) and any(b.language in COMMANDS for b in pages.blocks(p))]
    passed = failed = 0
    with ThreadPoolExecutor(options.jobs if begin else 1) as pool:
        for _, text, fine in pool.map(lambda p: attempt(p, begin, options), wanted):
            print(text, flush=True)
            passed, failed = passed + fine, failed + (not fine)
    if not options.pages:
        for name, wrong in checks.all_of_them(BUILD):
            print(f"FAILED {name}: {wrong}" if wrong else f"ok    {name}", flush=True)
            passed, failed = passed + (not wrong), failed + bool(wrong)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
