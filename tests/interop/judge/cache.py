"""Peers on this machine: installs each once into the cache folder and says where it is.

For every script of tests/interop and tests/bench. The cache is ${KC_CACHE:-$HOME/.cache/kclient}, outside the clone;
each installer is idempotent, holds a lock while it works, and raises when its peer cannot be had: a missing peer fails
the run. `python3 -m judge.cache [NAME...]` (from tests/interop) installs by hand.
"""
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
REPO = HERE.parent.parent
CACHE = Path(os.environ.get("KC_CACHE") or Path.home() / ".cache" / "kclient")
KAFKA_VERSION = os.environ.get("KAFKA_VERSION", "4.4.0")
WARNINGS = ["-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror"]


class Missing(Exception):
    """A peer that could not be installed."""


def run(args, **kw):
    """Runs an installer's command; its output is shown only when it fails."""
    kw.setdefault("stdout", subprocess.PIPE)
    r = subprocess.run([str(a) for a in args], stderr=subprocess.STDOUT, text=True, stdin=subprocess.DEVNULL, **kw)
    if r.returncode:
        raise Missing(f"{' '.join(map(str, args))} exited {r.returncode}:\n{(r.stdout or '')[-4000:]}")
    return r.stdout or ""


@contextmanager
def locked(name):
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / f".{name}.lock", "w") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        yield


def fingerprint(*paths):
    """Changes when any of the inputs of a built peer does."""
    h = hashlib.sha256()
    for p in paths:
        h.update(Path(p).read_bytes())
    return h.hexdigest()[:16]


def stamped(folder, key):
    s = folder / ".stamp"
    return s.exists() and s.read_text() == key


def stamp(folder, key):
    (folder / ".stamp").write_text(key)


def apt(command, *packages):
    """Debian packages, asked for only when the command (or file) they bring is absent."""
    found = Path(command).exists() if command.startswith("/") else shutil.which(command)
    if found:
        return
    with locked("apt"):
        sudo = [] if os.geteuid() == 0 else ["sudo", "-n"]
        env = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
        print(f"installing Debian packages: {' '.join(packages)}", file=sys.stderr)
        if subprocess.run([*sudo, "apt-get", "install", "-y", "-q", *packages], env=env, stdin=subprocess.DEVNULL,
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode:
            run([*sudo, "apt-get", "update", "-q"], env=env)
            run([*sudo, "apt-get", "install", "-y", "-q", *packages], env=env)


def kcat():
    apt("kcat", "kcat")
    return shutil.which("kcat")


def c_compiler():
    apt("gcc", "gcc", "libc6-dev")
    apt("/usr/include/jansson.h", "libjansson-dev")
    apt("/usr/include/librdkafka/rdkafka.h", "librdkafka-dev")


def kafka_libs(version=None):
    """Folder with all jars of Apache Kafka: broker, tools, clients."""
    version = version or KAFKA_VERSION
    libs = CACHE / f"kafka-{version}" / "libs"
    with locked(f"kafka-{version}"):
        if not list(libs.glob(f"kafka_2.13-{version}.jar")) or not stamped(libs, version):
            apt("javac", "default-jdk-headless")
            apt("mvn", "maven")
            shutil.rmtree(libs, ignore_errors=True)
            libs.parent.mkdir(parents=True, exist_ok=True)
            run(["mvn", "-q", "-B", "-f", HERE / "java" / "pom.xml", f"-Dkafka.version={version}",
                 "dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={libs}"])
            if not list(libs.glob(f"kafka_2.13-{version}.jar")):
                raise Missing(f"Maven left no kafka_2.13-{version}.jar in {libs}")
            stamp(libs, version)
    return libs


def java_peer():
    """Class folder of the Java peer and of the toolbox."""
    libs = kafka_libs()
    sources = [HERE / "java" / "Peer.java", HERE / "java" / "Tools.java"]
    out = CACHE / "java-peer"
    key = fingerprint(*sources) + KAFKA_VERSION
    with locked("java-peer"):
        if not stamped(out, key):
            shutil.rmtree(out, ignore_errors=True)
            out.mkdir(parents=True)
            run(["javac", "-Xlint:all,-processing,-classfile", "-Werror", "-cp", f"{libs}/*", "-d", out, *sources])
            stamp(out, key)
    return out


def venv():
    """Python of the environment with kafka-python and confluent-kafka."""
    req = HERE / "python" / "requirements.txt"
    out = CACHE / "venv"
    key = fingerprint(req)
    with locked("venv"):
        if not stamped(out, key):
            apt("/usr/lib/python3/dist-packages", "python3-venv")
            shutil.rmtree(out, ignore_errors=True)
            try:
                run([sys.executable, "-m", "venv", out])
            except Missing:
                apt("/nonexistent", "python3-venv")
                run([sys.executable, "-m", "venv", "--clear", out])
            run([out / "bin" / "pip", "install", "-q", "-r", req])
            stamp(out, key)
    return out / "bin" / "python"


def librdkafka_new():
    """Newest librdkafka: the shared object inside the confluent-kafka wheel, under its own name."""
    want = next(l.strip() for l in (HERE / "python" / "requirements.txt").read_text().splitlines()
                if l.startswith("confluent-kafka"))
    out = CACHE / "librdkafka-new"
    with locked("librdkafka-new"):
        if not stamped(out, want):
            python = venv()
            shutil.rmtree(out, ignore_errors=True)
            out.mkdir(parents=True)
            with tempfile.TemporaryDirectory() as tmp:
                run([python, "-m", "pip", "download", "-q", "--no-deps", "-d", tmp, want])
                wheel = next(Path(tmp).glob("confluent_kafka-*.whl"), None)
                if not wheel:
                    raise Missing(f"no wheel of {want} for this machine")
                with zipfile.ZipFile(wheel) as z:
                    names = [n for n in z.namelist() if ".libs/" in n and ".so" in n]
                    for n in names:
                        (out / Path(n).name).write_bytes(z.read(n))
            so = next(out.glob("librdkafka-*.so.1"), None)
            if not so:
                raise Missing(f"no librdkafka inside {want}")
            (out / "librdkafka.so.1").symlink_to(so.name)
            stamp(out, want)
    return out


def c_build(name, sources, flags, inputs=()):
    """Compiles a C program into the cache, under the repository's own warnings, when a source or library changed."""
    c_compiler()
    out = CACHE / "bin" / name
    key = fingerprint(*sources, *inputs) + " ".join(map(str, flags))
    keyfile = out.with_suffix(".key")
    with locked(f"build-{name}"):
        if not out.exists() or not keyfile.exists() or keyfile.read_text() != key:
            out.parent.mkdir(parents=True, exist_ok=True)
            run(["gcc", "-std=gnu11", "-O2", "-g", *WARNINGS, "-D_GNU_SOURCE", "-o", out,
                 *[s for s in sources if str(s).endswith(".c")], *flags])
            keyfile.write_text(key)
    return out


def rdk_flags(newest):
    """The newest librdkafka is compiled against Debian's headers too (ABI compatible), and found by its path at run time."""
    if not newest:
        return ["-Wno-deprecated-declarations", "-lrdkafka", "-lpthread"]
    libs = librdkafka_new()
    return ["-Wno-deprecated-declarations", libs / "librdkafka.so.1", f"-Wl,-rpath,{libs}", "-lpthread"]


CPEER = [HERE / "cpeer" / "job.h", HERE / "cpeer" / "job.c"]


def rdk_peer(newest):
    return c_build(f"rdk-peer-{'new' if newest else 'debian'}", [*CPEER, HERE / "cpeer" / "rdk_peer.c"],
                   [*rdk_flags(newest), "-ljansson"])


def build_tree():
    return Path(os.environ.get("KC_BUILD") or REPO / "build")


def kc_peer():
    """The peer on libkclient's public API, linked to the shared library of the build tree."""
    lib = build_tree() / "lib" / "libkclient.so"
    if not lib.exists():
        raise Missing(f"{lib} is not built")
    headers = sorted((REPO / "include" / "kclient").glob("*.h"))
    tag = hashlib.sha256(str(lib).encode()).hexdigest()[:8]   # a build tree each
    return c_build(f"kc-peer-{tag}", [*CPEER, HERE / "cpeer" / "kc_peer.c"],
                   [f"-I{REPO / 'include'}", f"-L{lib.parent}", f"-Wl,-rpath,{lib.parent}", "-lkclient", "-ljansson", "-lpthread"],
                   headers)


def go(module):
    """A Go that can build the module in this folder."""
    r = subprocess.run([REPO / "tests" / "go.sh", module], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL,
                       env=dict(os.environ, KC_CACHE=str(CACHE)))
    if r.returncode:
        raise Missing(r.stderr)
    return r.stdout.strip()


def franz():
    src = HERE / "franz"
    out = CACHE / "bin" / "franz-peer"
    key = fingerprint(src / "main.go", src / "member.go", src / "go.mod", src / "go.sum")
    keyfile = out.with_suffix(".key")
    with locked("franz"):
        if not out.exists() or not keyfile.exists() or keyfile.read_text() != key:
            out.parent.mkdir(parents=True, exist_ok=True)
            run([go(src), "build", "-o", out, "."], cwd=src)
            keyfile.write_text(key)
    return out


def kafkajs():
    """Folder with node_modules and the peer's scripts."""
    apt("node", "nodejs")
    apt("npm", "npm")
    src = HERE / "kafkajs"
    out = CACHE / "kafkajs"
    key = fingerprint(src / "package.json", src / "package-lock.json")
    with locked("kafkajs"):
        if not stamped(out, key):
            shutil.rmtree(out, ignore_errors=True)
            out.mkdir(parents=True)
            for f in ("package.json", "package-lock.json"):
                shutil.copy(src / f, out)
            run(["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"], cwd=out)
            stamp(out, key)
        for f in ("peer.js", "member.js"):
            shutil.copy(src / f, out)
    return out


ALL = {
    "kcat": kcat, "kafka": kafka_libs, "java": java_peer, "venv": venv, "librdkafka": librdkafka_new, "franz": franz,
    "kafkajs": kafkajs,
    "rdk-debian": lambda: rdk_peer(False), "rdk-new": lambda: rdk_peer(True),
}

if __name__ == "__main__":
    for name in sys.argv[1:] or ALL:
        print(f"{name}: {ALL[name]()}", flush=True)
