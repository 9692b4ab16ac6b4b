"""The programs of examples/: they build against the library as a user builds them, do what they say, and say what is wrong."""
import re
import resource
import subprocess
import time

from scene import BUILD, KBROKER, ROOT, Broker, equal, holds, kc, main, run, test


def build(folder, name, *libraries):
    r = run("gcc", "-O1", "-Wall", "-Wextra", "-Werror", "-I", ROOT / "include", ROOT / "examples" / f"{name}.c", "-o", folder / name, f"-L{BUILD}/lib", *libraries, "-lkclient",
            f"-Wl,-rpath,{BUILD}/lib")
    equal(r.returncode, 0, r.stderr)
    return folder / name


@test
def the_examples_build_and_run(folder):
    b = Broker(folder / "d")
    for name in ("produce", "consume"):
        build(folder, name)
    equal(run(folder / "produce", b.address, "t", "text").stdout, "partition 0, offset 0\n")
    equal(run(folder / "consume", b.address, "t", "0").stdout, "0: text\n")
    equal(run(folder / "produce").returncode, 2)
    for args, words in ((["consume", b.address, "t", "7"], "no such partition"), (["produce", b.address, "a/b", "x"], "topic name")):
        r = run(folder / args[0], *args[1:], timeout=30)
        equal((r.returncode, r.stdout), (1, ""), " ".join(args))
        holds(r.stderr, words)


def played(p, wait=120):
    """A program to its end: exit status, output, errors, and the seconds of CPU that it took."""
    out, error = p.communicate(timeout=wait)
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return p.returncode, out.decode(), error.decode(), usage.ru_utime + usage.ru_stime


@test
def clients_without_a_thread_live_in_loops_of_others(folder):
    b = Broker(folder / "d")
    for name, libraries in (("embed_epoll", []), ("embed_libuv", ["-luv"])):
        program = build(folder, name, *libraries)
        equal(kc(b, "topic", "create", name, "--partitions", 3).returncode, 0)
        r = run(program, b.address, name, 20000)
        equal((r.returncode, r.stdout.split(";")[0]), (0, "sent 20000, stored 20000, read 20000"), r.stderr)
        equal(len(kc(b, "consume", "-t", name, "-o", "beginning", "-e").stdout.splitlines()), 20000)
        # With nothing to do they sleep: the broker answers no Produce for two seconds.
        before = played(subprocess.Popen(["true"], stdout=subprocess.PIPE, stderr=subprocess.PIPE))[3]
        equal(run(KBROKER, "fault", "add", '{"api": "Produce", "stall": true}', "--data", folder / "d").returncode, 0)
        p = subprocess.Popen([program, b.address, name, "3000"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        time.sleep(2)
        equal(p.poll(), None, "it waits")
        equal(run(KBROKER, "fault", "clear", "--data", folder / "d").returncode, 0)
        rc, out, error, cpu = played(p)
        equal((rc, out), (0, "sent 3000, stored 3000, read 3000; the queue was full at times\n"), error)
        equal(re.search(r"went off (\d+) times", error) is not None and int(re.search(r"went off (\d+) times", error)[1]) > 20, True, "the loop had time for others: " + error)
        equal(cpu - before < 1, True, f"{cpu - before} s of CPU for two seconds of waiting: it spins")
        r = run(program, b.address)
        equal((r.returncode, r.stdout), (2, ""))
        holds(r.stderr, "usage")


@test
def a_test_with_kbroker_passes(folder):
    r = run(build(folder, "test_with_kbroker", "-lkclient_test"), timeout=240)
    equal((r.returncode, r.stderr), (0, ""))
    equal(r.stdout.splitlines(), ["the leader dies: ok", "answers are lost: ok", "too few replicas: ok"])


main()
