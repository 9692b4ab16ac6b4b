#!/usr/bin/env python3
"""Style is a test. Run from anywhere: tests/tidy.py [BUILD_DIR]

Source checks (always):
  - no clock, socket, file, thread, process or random call, and none of their headers, outside the shells
  - lines, functions and files within their limits, or listed below with a reason (a reason that no longer applies fails too)
  - each C file starts with a comment that says what it is for; headers have a guard
  - no leftover markers, no text that does not belong in the product
Build checks (with BUILD_DIR): the same ban on the symbols that the core archives really need; the shared library exports what carries
KC_API and nothing else.
"""
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINE_MAX, FUNCTION_MAX, FILE_MAX = 160, 70, 800

# The shells: the only product code that may touch the outside world.
SHELLS = re.compile(r"^(client/(shell|handle|loop|tls)[a-z_]*\.[ch]|client/(cli|testkit)/.*|broker-ref/(shell_[a-z_]+|main[a-z_]*|cluster[a-z_]*|admin_http[a-z_]*)\.[ch]"
                    r"|tests/.*|examples/.*|bindings/.*)$")
# Calls that a core must never make, by symbol.
BANNED = set("""
time gettimeofday clock_gettime clock nanosleep usleep sleep localtime gmtime mktime strftime timer_create timerfd_create
socket connect bind listen accept accept4 send sendto sendmsg sendfile recv recvfrom recvmsg poll ppoll select epoll_create1 epoll_wait
getaddrinfo gethostbyname setsockopt getsockopt shutdown
open openat creat fopen fdopen fclose fread fwrite fgets fputs read write pread pwrite readv writev preadv pwritev preadv2 pwritev2
close dup dup2 pipe fcntl ioctl stat fstat lstat statx mmap munmap msync unlink rename remove mkdir rmdir opendir readdir fsync fdatasync
ftruncate truncate lseek flock mkstemp eventfd
printf vprintf puts putchar perror getenv setenv secure_getenv
pthread_create pthread_join pthread_cond_wait pthread_cond_timedwait thrd_create fork execve system popen kill raise signal sigaction
rand srand random srandom drand48 getrandom arc4random getentropy RAND_bytes
""".split())
BANNED_HEADERS = set("""time.h sys/time.h sys/socket.h netinet/in.h arpa/inet.h netdb.h poll.h sys/epoll.h sys/eventfd.h fcntl.h unistd.h sys/stat.h
sys/mman.h dirent.h pthread.h threads.h signal.h uv.h sys/uio.h sys/random.h microhttpd.h""".split())
# file -> {symbol or header: reason}
ALLOWED = {
    "client/base/base.c": {"fprintf": "an assertion says where it failed before it aborts"},
    "client/base/lock.h": {"pthread.h": "the one mutex of the sending path; the simulator runs it uncontended"},
    "client/base/lock.c": {"pthread.h": "the one mutex of the sending path; the simulator runs it uncontended"},
}
# Archives whose undefined symbols are checked; what a mutex needs is allowed.
CORE_ARCHIVES = ["libkwire.a", "libkccore.a", "libkbcore.a"]

EXCEPTIONS = ROOT / "tests" / "tidy_exceptions.txt"  # "file | a function, `file` (its length), `columns` or `guard` | reason"
problems = []


def say(where, text):
    problems.append(f"{where}: {text}")


def tracked(*patterns):
    out = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "--", *patterns], cwd=ROOT, capture_output=True, text=True, check=True)
    return [f for f in out.stdout.splitlines() if (ROOT / f).is_file()]


def strip(text):
    """Comments and literals blanked, line structure kept."""
    def blank(m):
        return re.sub(r"[^\n]", " ", m.group(0))
    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', blank, text, flags=re.S)


def functions(code):
    """(name, first line, line count) of each function defined at file level."""
    depth = 0
    start = None
    name = None
    head = ""
    for number, line in enumerate(code.split("\n"), 1):
        if line.startswith("#"):
            continue
        for ch in line:
            if ch == "{":
                if depth == 0:
                    m = re.search(r"([A-Za-z_]\w*)\s*\([^;{}]*\)\s*$", head.strip())
                    if m and "=" not in head.split("(")[0]:
                        name, start = m.group(1), number
                depth += 1
            elif ch == "}":
                depth -= 1
                if depth == 0:
                    if name:
                        yield name, start, number - start + 1
                    name, head = None, ""
            elif depth == 0:
                head = "" if ch == ";" else head + ch
        if depth == 0:
            head += " "


def load_exceptions():
    table = {}
    if EXCEPTIONS.exists():
        for line in EXCEPTIONS.read_text().splitlines():
            if line.strip() and not line.startswith("#"):
                f, what, reason = (x.strip() for x in line.split("|", 2))
                if len(reason) < 10:
                    say(EXCEPTIONS.name, f"{f} {what}: say why")
                table[(f, what)] = reason
    return table


def check_sources():
    exceptions = load_exceptions()
    used = set()
    for f in tracked("*.c", "*.h"):
        raw = (ROOT / f).read_text(errors="replace")
        code = strip(raw)
        lines = raw.split("\n")
        product = f.startswith(("client/", "broker-ref/", "include/"))
        if not raw.lstrip().startswith("/*"):
            say(f, "starts without a comment that says what it is for")
        if f.endswith(".h") and "#ifndef" not in code and "_table.h" not in f:
            if (f, "guard") in exceptions:
                used.add((f, "guard"))
            else:
                say(f, "header without a guard")
        for number, line in enumerate(lines, 1):
            if len(line) > LINE_MAX and (f, "columns") in exceptions:
                used.add((f, "columns"))
            elif len(line) > LINE_MAX:
                say(f"{f}:{number}", f"{len(line)} columns, at most {LINE_MAX}")
            if "\t" in line and product:
                say(f"{f}:{number}", "tab")
        if len(lines) > FILE_MAX:
            if (f, "file") in exceptions:
                used.add((f, "file"))
            else:
                say(f, f"{len(lines)} lines, at most {FILE_MAX}: split it, or list it with a reason in {EXCEPTIONS.name}")
        for name, at, count in functions(code):
            if count > FUNCTION_MAX:
                if (f, name) in exceptions:
                    used.add((f, name))
                else:
                    say(f"{f}:{at}", f"{name} has {count} lines, at most {FUNCTION_MAX}")
        if product and not SHELLS.match(f):
            allowed = ALLOWED.get(f, {})
            for h in re.findall(r"^\s*#\s*include\s*<([^>]+)>", raw, re.M):
                if h in BANNED_HEADERS and h not in allowed:
                    say(f, f"includes <{h}>: a core makes no {h.split('.')[0]} call")
            for m in re.finditer(r"(?<![\w.>])([a-z_]\w*)\s*\(", code):
                if m.group(1) in BANNED and m.group(1) not in allowed:
                    say(f"{f}:{code.count(chr(10), 0, m.start()) + 1}", f"calls {m.group(1)}(): only shells may")
        if product:
            for number, line in enumerate(lines, 1):
                if re.search(r"\b(TODO|FIXME|XXX)\b|not implemented|unimplemented|\bstub\b", line, re.I):
                    say(f"{f}:{number}", "unfinished work is still marked")
    for key in exceptions:
        if key not in used:
            say(EXCEPTIONS.name, f"{key[0]} {key[1]} is listed and needs no exception")


def check_text():
    hosts = r"repo1?\.maven|repo\.maven|pypi\.org|files\.pythonhosted|registry\.npmjs|proxy\.golang|static\.crates|deb\.debian"
    for f in tracked():
        path = ROOT / f
        if f == "tests/tidy.py" or path.stat().st_size > 1 << 20:
            continue
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        if path.stat().st_size > 400_000:
            say(f, "over 400 kB: a script could make it")
        for m in re.finditer(hosts, text):
            say(f, f"names a registry host ({m.group(0)}): use the package client by name")


def nm(*args):
    return subprocess.run(["nm", *args], capture_output=True, text=True, check=True).stdout


def check_build(build):
    checked = 0
    for a in CORE_ARCHIVES:
        path = build / "lib" / a
        if not path.exists():
            say(a, f"not built in {build}")
            continue
        member = ""
        for line in nm("-u", str(path)).splitlines():
            if line.endswith(":"):
                member = line[:-1]
            symbol = line.split()[-1].split("@")[0] if line.strip() else ""
            base = re.sub(r"^__(\w+)_chk$", r"\1", symbol)
            base = re.sub(r"^__?(isoc\d+_)?", "", base) if base.startswith("__isoc") else base
            if base in BANNED and not (member == "base.c.o" and base in ("fprintf",)):
                say(f"{a}({member})", f"needs {symbol}: only shells may")
            checked += 1
    headers = sorted((ROOT / "include" / "kclient").glob("*.h"))
    kit = [h for h in headers if h.name == "kclient_test.h"]
    check_exports(build / "lib" / "libkclient.so", [h for h in headers if h not in kit])
    check_exports(build / "lib" / "libkclient_test.so", kit)
    return checked


def check_exports(so, headers):
    """The library exports what its headers declare, and nothing else."""
    if so.exists():
        exported = {l.split()[-1].split("@")[0] for l in nm("-D", "--defined-only", str(so)).splitlines()}
        declared = set()
        for h in headers:
            for m in re.finditer(r"KC_API[^;]*?\b(kc_\w+)\s*\(", strip(h.read_text())):
                declared.add(m.group(1))
        for s in sorted(exported - declared):
            say(so.name, f"exports {s} without KC_API in a public header")
        for s in sorted(declared - exported):
            say(so.name, f"declares {s} and does not define it")
    else:
        say(so.name, f"not built in {so.parent.parent}")


def main():
    check_sources()
    check_text()
    if len(sys.argv) > 1:
        check_build(Path(sys.argv[1]).resolve())
    for p in problems:
        print(p)
    print(f"tidy: {0 if problems else 1} passed, {len(problems)} failed")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
