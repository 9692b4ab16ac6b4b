"""What the scenario tests share: programs of the build, a broker as a child process, checks that count."""
import http.client
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
BUILD = Path(os.environ.get("KC_BUILD", ROOT / "build"))
KC = str(BUILD / "bin" / "kc")
KBROKER = str(BUILD / "bin" / "kbroker")
# A run in the background has SIGINT ignored, and so would have what is started here; whoever catches it hands the default on.
signal.signal(signal.SIGINT, signal.default_int_handler)
_children = []
_tests = []


def test(fn):
    """Marks a function as a test; it gets a temporary folder."""
    _tests.append(fn)
    return fn


def run(*args, stdin=b"", timeout=60, **kw):
    """A finished command: .returncode, .stdout, .stderr as text."""
    if isinstance(stdin, str):
        stdin = stdin.encode()
    r = subprocess.run([a if isinstance(a, bytes) else str(a) for a in args], input=stdin, capture_output=True, timeout=timeout, **kw)
    r.stdout, r.stderr = r.stdout.decode(errors="replace"), r.stderr.decode(errors="replace")
    return r


def line_of(p, wait=60):
    """The next line that the program prints, "" at its end. p.stdout is a pipe that nobody has read ahead of. Without a line within the limit it is killed, and that
    is an error."""
    line, end = b"", time.monotonic() + wait
    while not line.endswith(b"\n"):
        ready, _, _ = select.select([p.stdout], [], [], max(end - time.monotonic(), 0))
        if not ready:
            p.kill()
            raise AssertionError(f"{' '.join(map(str, p.args))}: no line within {wait} s; there is {line!r}")
        byte = os.read(p.stdout.fileno(), 1)
        if not byte:
            break
        line += byte
    return line.decode()


class Broker:
    """kbroker run … until .stop() or the end of the test."""

    def __init__(self, data, *options, listen="127.0.0.1:0", wait=30, prefix=()):
        self.launch([*prefix, KBROKER, "run", "--data", str(data), "--listen", listen, *map(str, options)], wait)

    def launch(self, args, wait):
        self.log = tempfile.TemporaryFile()
        self.p = subprocess.Popen(args, stdout=subprocess.PIPE, stderr=self.log)
        _children.append(self.p)
        try:
            line = line_of(self.p, wait)
        except AssertionError:
            line = ""
        self.address = line.split()[1] if line.startswith("ready ") else None

    @property
    def port(self):
        return int(self.address.rsplit(":", 1)[1])

    def text(self):
        self.log.seek(0)
        return self.log.read().decode(errors="replace")

    def stop(self, sig=signal.SIGTERM, wait=30):
        self.p.send_signal(sig)
        return self.p.wait(wait)


def kc(broker, *args, **kw):
    return run(KC, *args, "-b", broker.address, **kw)


class Unix(http.client.HTTPConnection):
    """HTTP over a socket in a folder."""

    def __init__(self, path):
        super().__init__("localhost", timeout=60)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        here = os.open(self.path.parent, os.O_PATH)  # a socket's name is short, a folder's may not be
        self.sock.connect(f"/proc/self/fd/{here}/{self.path.name}")
        os.close(here)


def ask(data, method, url, body=None):
    """The admin port of a folder's broker or cluster: (HTTP status, JSON)."""
    c = Unix(data / ".admin.sock")
    c.request(method, url, json.dumps(body) if not isinstance(body, (str, type(None))) else body)
    r = c.getresponse()
    answer = json.loads(r.read())
    c.close()
    return r.status, answer


def equal(seen, wanted, what=""):
    if seen != wanted:
        raise AssertionError(f"{what or 'value'}: seen {seen!r}, wanted {wanted!r}")


def holds(text, *words):
    for w in words:
        if w not in text:
            raise AssertionError(f"{w!r} is not in: {text!r}")


def eventually(what, fn, wait=20):
    end = time.monotonic() + wait
    while time.monotonic() < end:
        if fn():
            return
        time.sleep(0.05)
    raise AssertionError(f"not within {wait} s: {what}")


def until_caught(p, sig):
    """Waits until the program has a handler of its own for the signal: sent before, it would end it as any other."""
    def caught():
        with open(f"/proc/{p.pid}/status") as f:
            mask = next(line for line in f if line.startswith("SigCgt")).split()[1]
        return int(mask, 16) >> (sig - 1) & 1
    eventually(f"signal {sig} is caught", caught)


def main():
    wanted = sys.argv[1:]
    passed = failed = 0
    for fn in _tests:
        if wanted and fn.__name__ not in wanted:
            continue
        folder = Path(tempfile.mkdtemp(prefix="kc-scene-"))
        try:
            fn(folder)
            passed += 1
        except Exception:  # noqa: BLE001 - every failure is a failed test
            failed += 1
            print(f"FAILED {fn.__name__}")
            traceback.print_exc()
        finally:
            for p in _children:
                if p.poll() is None:
                    p.kill()
                    p.wait()
            _children.clear()
            shutil.rmtree(folder, ignore_errors=True)
    print(f"{passed} passed, {failed} failed")
    sys.exit(0 if failed == 0 and passed else 1)
