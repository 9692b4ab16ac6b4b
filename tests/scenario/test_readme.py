"""The commands of README.md do what it says: its five minutes, on a build of this tree."""
import fnmatch
import os
import re
import shutil
import socket
import subprocess

from scene import BUILD, ROOT, Broker, equal, holds, kc, main, run, test


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / "README.md").read_text(), re.S)


@test
def the_five_minutes_run_as_written(folder):
    tour = next(b for b in blocks("sh") if "kbroker run" in b)
    os.symlink(BUILD, folder / "build")
    script = "set -eu\ntrap 'kill $! 2>/dev/null; wait' EXIT\n" + tour.replace("-L   ", "-L >/dev/null ")
    script = re.sub(r"&.*\n", "& for i in $(seq 100); do build/bin/kc cluster >/dev/null 2>&1 && break; sleep 0.1; done\n", script, count=1)
    # The tour's default port may be taken on a machine that runs tests: another one, in every command.
    b = Broker(folder / "probe")
    port = b.port
    b.stop()
    script = script.replace("127.0.0.1:9092", f"127.0.0.1:{port}").replace("build/bin/kc topic", f"build/bin/kc topic -b 127.0.0.1:{port}")
    script = script.replace("build/bin/kc produce", f"build/bin/kc produce -b 127.0.0.1:{port}").replace("build/bin/kc consume", f"build/bin/kc consume -b 127.0.0.1:{port}")
    script = script.replace("build/bin/kc cluster", f"build/bin/kc cluster -b 127.0.0.1:{port}")
    # `kc topic -b ADDRESS create` is not how a person writes it: the option goes behind the sub-command.
    script = re.sub(r"kc topic -b (\S+) (\w+)", r"kc topic \2 -b \1", script)
    r = subprocess.run(["bash", "-c", script], cwd=folder, capture_output=True, text=True, timeout=60)
    equal(r.returncode, 0, r.stderr + r.stdout)
    holds(r.stdout, f"ready 127.0.0.1:{port}", "en hello", "fr bonjour", "topic greetings, 2 partitions")


@test
def the_groups_run_as_written(folder):
    tour = next(b for b in blocks("sh") if "kc group" in b)
    os.symlink(BUILD, folder / "build")
    b = Broker(folder / "probe")
    at = b.address
    b.stop()
    tour = re.sub(r"build/bin/kc (topic \w+|group \w+|produce|consume)", rf"build/bin/kc \1 -b {at}", tour.replace("127.0.0.1:9092", at))
    tour = re.sub(r"&.*\n", f"& for i in $(seq 100); do build/bin/kc cluster -b {at} >/dev/null 2>&1 && break; sleep 0.1; done\n", tour, count=1)
    r = subprocess.run(["bash", "-c", "set -eu\ntrap 'kill $! 2>/dev/null; wait' EXIT\n" + tour], cwd=folder, capture_output=True, text=True, timeout=60)
    equal(r.returncode, 0, r.stderr + r.stdout)
    holds(r.stdout, "\n1000\n", "group billing: Empty", "4 offsets would be set; --execute does it", "4 offsets set", "Empty  classic", "deleted group billing")


@test
def the_guids_run_as_written(folder):
    tour = next(b for b in blocks("sh") if "kc guid" in b)
    os.symlink(BUILD, folder / "build")
    b = Broker(folder / "probe")
    at = b.address
    b.stop()
    tour = re.sub(r"build/bin/kc (topic \w+|guid \w+|produce|consume)", rf"build/bin/kc \1 -b {at}", tour.replace("127.0.0.1:9092", at))
    tour = re.sub(r"&.*\n", f"& for i in $(seq 100); do build/bin/kc cluster -b {at} >/dev/null 2>&1 && break; sleep 0.1; done\n", tour, count=1)
    r = subprocess.run(["bash", "-c", "set -eu\ntrap 'kill $! 2>/dev/null; wait' EXIT\n" + tour], cwd=folder, capture_output=True, text=True, timeout=60)
    equal(r.returncode, 0, r.stderr + r.stdout)
    equal(r.stdout.count("ann pays 10\n"), 2, r.stdout)  # consumed once, and got once
    holds(r.stderr, "record 1 was stored before: partition 0, offset 0")
    holds(r.stdout, "value      ann pays 10", "entries")


@test
def the_guarantees_run_as_written(folder):
    commands = next(b for b in blocks("sh") if "guarantees.sh" in b).splitlines()
    said = re.findall(r"orders: (\d+) lost, (\d+) more than once", blocks("text")[0])
    seen = []
    for c in commands:
        r = run("bash", "-c", c, cwd=ROOT, env={**os.environ, "KC_BUILD": str(BUILD)}, timeout=300)
        equal(r.returncode, 0, r.stderr)
        seen += re.findall(r"records of 2000 orders: (\d+) lost, (\d+) more than once", r.stdout)
    equal([(lost, twice != "0") for lost, twice in seen], [(lost, twice != "0") for lost, twice in said], f"seen: {seen}")


def three_ports():
    """The first of three free ones in a row."""
    for base in range(21000, 32000, 7):
        held = []
        try:
            for i in range(3):
                held.append(socket.socket())
                held[-1].bind(("127.0.0.1", base + i))
            return base
        except OSError:
            continue
        finally:
            for s in held:
                s.close()
    raise AssertionError("no three free ports in a row")


@test
def the_cluster_runs_as_written(folder):
    tour = next(b for b in blocks("sh") if "kbroker cluster" in b)
    os.symlink(BUILD, folder / "build")
    base = three_ports()
    tour = tour.replace("cluster --nodes 3", f"cluster --nodes 3 --base-port {base}").replace("127.0.0.1:9093", f"127.0.0.1:{base + 1}")
    tour = tour.replace("topic create orders", f"topic create orders -b 127.0.0.1:{base}").replace("kc cluster", f"kc cluster -b 127.0.0.1:{base}")
    tour = tour.replace("kc reassign", f"kc reassign -b 127.0.0.1:{base}").replace("kc elect", f"kc elect -b 127.0.0.1:{base}")
    tour = re.sub(r"&.*\n", f"& for i in $(seq 300); do build/bin/kc cluster -b 127.0.0.1:{base} 2>/dev/null | grep -c ' up' | grep -qx 3 && break; sleep 0.1; done\n", tour, count=1)
    r = subprocess.run(["bash", "-c", "set -eu\ntrap 'kill $! 2>/dev/null; wait' EXIT\n" + tour], cwd=folder, capture_output=True, text=True, timeout=120)
    equal(r.returncode, 0, r.stderr + r.stdout)
    holds(r.stdout, "created topic orders", "topic orders, 1 partition", "waiting for broker 0", "moved 1 partition in", "controller")


@test
def the_c_program_builds_and_runs(folder):
    c = next(iter(blocks("c")))
    program = "#include <kclient/producer.h>\n#include <stdio.h>\nint main(void) {\n" + c + '\nprintf("%d %lld\\n", report.partition, (long long)report.offset);\nreturn 0; }\n'
    b = Broker(folder / "d")
    (folder / "p.c").write_text(program.replace("127.0.0.1:9092", b.address))
    r = run("gcc", "-I", ROOT / "include", folder / "p.c", "-o", folder / "p", f"-L{BUILD}/lib", "-lkclient", f"-Wl,-rpath,{BUILD}/lib")
    equal(r.returncode, 0, r.stderr)
    r = run(folder / "p")
    equal((r.returncode, r.stdout), (0, "0 0\n"), r.stderr)
    equal(kc(b, "consume", "-t", "greetings", "-o", "beginning", "-e").stdout, "hello\n")


@test
def the_examples_build_and_run(folder):
    b = Broker(folder / "d")
    for name in ("produce", "consume"):
        r = run("gcc", "-Wall", "-Werror", "-I", ROOT / "include", ROOT / "examples" / f"{name}.c", "-o", folder / name, f"-L{BUILD}/lib", "-lkclient", f"-Wl,-rpath,{BUILD}/lib")
        equal(r.returncode, 0, r.stderr)
    equal(run(folder / "produce", b.address, "t", "text").stdout, "partition 0, offset 0\n")
    equal(run(folder / "consume", b.address, "t", "0").stdout, "0: text\n")
    equal(run(folder / "produce").returncode, 2)
    for args, words in ((["consume", b.address, "t", "7"], "no such partition"), (["produce", b.address, "a/b", "x"], "topic name")):
        r = run(folder / args[0], *args[1:], timeout=30)
        equal((r.returncode, r.stdout), (1, ""), " ".join(args))
        holds(r.stderr, words)


@test
def every_file_it_names_is_there(folder):
    text = (ROOT / "README.md").read_text()
    for name in re.findall(r"`((?:client|broker-ref|bindings|tests|examples|include)/[\w./*{},-]*)`", text):
        if not list(ROOT.glob(re.sub(r"\{.*?\}", "*", name))):
            raise AssertionError(f"README.md names {name}, which is not there")
    equal(shutil.which("pkg-config") is not None, True)


@test
def the_file_maps_name_every_source_file_and_no_other(folder):
    for base in ("client", "broker-ref"):
        text = (ROOT / base / "README.md").read_text()
        table = [line for line in text.splitlines() if line.startswith("|")]
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
                    found = {f for f in files if fnmatch.fnmatch(f, name)}
                    if not found and re.search(r"\.[ch*]$", name):
                        raise AssertionError(f"{base}/README.md names {name}, which is not there")
                    named |= found
        stems = {n.rsplit(".", 1)[0] for n in named}  # a header may stand with its .c file
        missing = sorted(f for f in files - named if not (f.endswith(".h") and f[:-2] in stems))
        equal(missing, [], f"files that {base}/README.md does not name")


main()
