"""Compares what a command printed with what its page says it prints."""
import difflib
import re

# What differs from run to run, on both sides.
MASKS = [(r"\x1b\[[0-9;]*m", ""),
         (r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d([.,]\d+)?(Z|[+-]\d\d:?\d\d)?", "<time>"),
         (r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "<uuid>"),
         (r"(?<![\w-])(?=[A-Za-z0-9_-]*[A-Z])(?=[A-Za-z0-9_-]*[a-z])[A-Za-z0-9_-]{22}(?![\w-])", "<id>"),
         (r"\b1[5-9]\d{11}\b", "<ms>"),
         (r"\b(pid|process) \d+", r"\1 <pid>"),
         (r"\b\d+(\.\d+)? ?(us|ms|s)\b", "<duration>"),
         (r"[ \t]+", " ")]


NUMBERS = [(r"(?<![\w.])\d*[1-9]\d*(\.\d+)?\b|(?<![\w.])0\.0*[1-9]\d*\b", "<number>")]  # where they may differ: but 0 stays 0


def masked(text, numbers=False):
    text = re.sub(r"(?<![\w.,])\d+(,\d+)+(?![\w,])", lambda m: ",".join(sorted(m[0].split(","))), text)  # ids of brokers, in sync in any order
    for pattern, put in MASKS + (NUMBERS if numbers else []):
        text = re.sub(pattern, put, text)
    return [line.strip() for line in text.strip("\n").splitlines()]


def differs(said, seen, numbers=False):
    """None when they agree, else how they differ. `…` in what the page says is anything within its line; alone on a line: any lines."""
    said, seen = masked(said, numbers), masked(seen, numbers)
    pattern = "".join(r"(?:.*\n)*?" if line == "…" else ".*?".join(re.escape(part) for part in line.split("…")) + r"\n" for line in said)
    if re.fullmatch(pattern, "".join(line + "\n" for line in seen)):
        return None
    return "\n".join(difflib.unified_diff(said, seen, "as the page says", "as it was", lineterm="", n=20))
