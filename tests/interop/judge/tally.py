"""Counts checks and prints the closing line `N passed, N failed` that the runner reads."""
import sys
import time
import traceback


class Tally:
    def __init__(self, title):
        self.title, self.passed, self.failed = title, 0, 0
        self.began = time.monotonic()
        print(f"== {title}", flush=True)

    def check(self, name, problems):
        """problems: empty when the check passed; a text or a list of texts else."""
        if not problems:
            self.passed += 1
            return True
        self.failed += 1
        lines = [problems] if isinstance(problems, str) else list(problems)
        print(f"FAILED {name}", *(f"    {x}" for x in lines), sep="\n", flush=True)
        return False

    def attempt(self, name, call, *args, **kw):
        """Runs call; what it returns or raises is the check's outcome. A call returns problems, or nothing."""
        try:
            return self.check(name, call(*args, **kw))
        except Exception as e:   # a judge that breaks is a failed check, and says where
            where = "" if type(e).__module__.startswith("judge.") else "".join(traceback.format_exc(limit=-3))
            return self.check(name, f"{type(e).__name__}: {e}\n{where}".rstrip())

    def note(self, text):
        print(f"   {time.monotonic() - self.began:6.1f} s  {text}", flush=True)

    def close(self):
        """The closing line; returns the exit code. A run without any check is a failure."""
        if not self.passed and not self.failed:
            self.failed += 1
            print("FAILED: no check ran")
        print(f"   {time.monotonic() - self.began:6.1f} s  {self.title}")
        print(f"{self.passed} passed, {self.failed} failed", flush=True)
        return 1 if self.failed else 0


def main(run):
    """The frame of every script: exit code, and the closing line even when run itself breaks."""
    try:
        code = run()
    except KeyboardInterrupt:
        code = 130
    except Exception:
        traceback.print_exc()
        print("0 passed, 1 failed", flush=True)
        code = 1
    sys.exit(code)
