#!/usr/bin/env python3
"""See run.sh. A scratch copy of the sources for each job; each mutant is applied there, the simulator built, seeds run, the sources restored."""
import glob, os, queue, re, shutil, subprocess, sys, tempfile, threading, time

here = os.path.dirname(os.path.abspath(__file__))
root = os.path.abspath(f"{here}/../../..")
SEEDS = 20
lock = threading.Lock()
results = []

def say(text):
    with lock:
        print(text, flush=True)

def copy_tree(to):
    names = ["CMakeLists.txt", "cmake", "client", "broker-ref", "include", "tests"]
    ignore = shutil.ignore_patterns("__pycache__", "node_modules", "target", "*.o")
    for n in names:
        if os.path.isdir(f"{root}/{n}"):
            shutil.copytree(f"{root}/{n}", f"{to}/{n}", ignore=ignore, symlinks=True)
        else:
            shutil.copy2(f"{root}/{n}", f"{to}/{n}")

def build(tree, jobs):
    env = dict(os.environ, CCACHE_BASEDIR=tree, CCACHE_NOHASHDIR="1")
    if not os.path.exists(f"{tree}/build/build.ninja"):
        r = subprocess.run(["cmake", "-G", "Ninja", "-B", f"{tree}/build", "-S", tree], env=env, capture_output=True, text=True)
        if r.returncode:
            return r.stdout + r.stderr
    r = subprocess.run(["ninja", "-C", f"{tree}/build", f"-j{jobs}", "sim"], env=env, capture_output=True, text=True)
    return None if r.returncode == 0 else r.stdout[-3000:]

def run_seed(sim, world, seed, twice):
    """The invariant that failed, None if none did."""
    try:
        r = subprocess.run([sim, f"--{world}", "--seed", str(seed)] + ([] if twice else ["--here"]), capture_output=True, text=True, timeout=300, errors="replace")
    except subprocess.TimeoutExpired:
        return 37
    m = re.search(r"^failed seed \d+ invariant (\d+)", r.stdout, re.M)
    if m:
        return int(m.group(1))
    return 37 if r.returncode < 0 else None

def one(tree, path):
    name = os.path.basename(path).removesuffix(".mutant")
    start = time.time()
    fields = subprocess.run([sys.executable, f"{here}/apply.py", "--fields", path], capture_output=True, text=True)
    if fields.returncode:
        return name, False, fields.stderr.strip()
    world, *numbers = fields.stdout.split()
    first, *wanted = [int(x) for x in numbers]
    touched = [l.split(":", 1)[1].strip() for l in open(path) if l.startswith("file:")]
    try:
        r = subprocess.run([sys.executable, f"{here}/apply.py", tree, path], capture_output=True, text=True)
        if r.returncode:
            return name, False, r.stderr.strip()
        err = build(tree, 1)
        if err:
            return name, False, "does not build:\n" + err
        seen = []
        for seed in range(first, first + SEEDS):
            failed = run_seed(f"{tree}/build/tests/sim", world, seed, 38 in wanted)
            if failed in wanted:
                return name, True, f"caught by invariant {failed} in seed {seed} (the {seed - first + 1}. tried), {time.time() - start:.0f} s"
            seen.append(failed)
        others = sorted({x for x in seen if x})
        return name, False, f"survived {SEEDS} seeds" + (f"; what failed was {others}, not {wanted}" if others else "")
    finally:
        for f in touched:
            shutil.copy(f"{root}/{f}", f"{tree}/{f}")

def worker(tree, todo):
    os.makedirs(tree)
    copy_tree(tree)
    err = build(tree, 2)
    while True:
        try:
            path = todo.get_nowait()
        except queue.Empty:
            return
        name, ok, text = one(tree, path) if not err else (os.path.basename(path), False, "the sources do not build:\n" + err)
        results.append(ok)
        say(f"{'ok  ' if ok else 'FAIL'} {name}: {text}")

def main():
    args = sys.argv[1:]
    jobs = 2
    if "--jobs" in args:
        i = args.index("--jobs")
        jobs = int(args[i + 1])
        del args[i : i + 2]
    paths = sorted(glob.glob(f"{here}/*.mutant")) if not args else [f"{here}/{a}.mutant" for a in args]
    todo = queue.Queue()
    for p in paths:
        todo.put(p)
    with tempfile.TemporaryDirectory(prefix="mutants-") as scratch:
        threads = [threading.Thread(target=worker, args=(f"{scratch}/{j}", todo)) for j in range(min(jobs, len(paths)))]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    failed = len(paths) - sum(results)
    print(f"{sum(results)} passed, {failed} failed")
    sys.exit(1 if failed else 0)

main()
