#!/usr/bin/env python3
"""Applies a mutant to a source tree: apply.py ROOT MUTANT. Each text to replace must stand there exactly once, else the mutant is out of date.

A mutant is a text: "# " lines that say what is broken, then fields and changes:
    invariant: 1 11       the checkers that may catch it, by number
    from: 101             the first of its 20 seeds (default 1)
    world: cluster        seeds of a cluster (default: of one node)
    file: path            of the changes that follow
    <<<                   old text
    ===                   new text
    >>>
With --fields it prints the fields only.
"""
import sys

def parse(path):
    fields, changes, file, mode, old, new = {"from": "1", "world": "one"}, [], None, None, [], []
    for line in open(path):
        mark = line.rstrip("\n")
        if mode is None and mark == "<<<":
            mode, old, new = "old", [], []
        elif mode == "old" and mark == "===":
            mode = "new"
        elif mode == "new" and mark == ">>>":
            changes.append((file, "".join(old), "".join(new)))
            mode = None
        elif mode == "old":
            old.append(line)
        elif mode == "new":
            new.append(line)
        elif line.startswith("#") or not line.strip():
            continue
        else:
            name, value = line.split(":", 1)
            if name == "file":
                file = value.strip()
            else:
                fields[name] = value.strip()
    if mode or not changes or "invariant" not in fields:
        sys.exit(f"{path}: not a mutant")
    return fields, changes

def main():
    if sys.argv[1] == "--fields":
        fields, _ = parse(sys.argv[2])
        print(fields["world"], fields["from"], fields["invariant"])
        return
    root, path = sys.argv[1:3]
    for file, old, new in parse(path)[1]:
        with open(f"{root}/{file}") as f:
            text = f.read()
        if text.count(old) != 1:
            sys.exit(f"{path}: its text stands {text.count(old)} times in {file}: bring the mutant up to date")
        with open(f"{root}/{file}", "w") as f:
            f.write(text.replace(old, new))

main()
