"""The programs of examples/: they build against the library as a user builds them, do what they say, and say what is wrong."""
from scene import BUILD, ROOT, Broker, equal, holds, main, run, test


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


@test
def a_test_with_kbroker_passes(folder):
    r = run(build(folder, "test_with_kbroker", "-lkclient_test"), timeout=240)
    equal((r.returncode, r.stderr), (0, ""))
    equal(r.stdout.splitlines(), ["the leader dies: ok", "answers are lost: ok", "too few replicas: ok"])


main()
