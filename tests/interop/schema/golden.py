#!/usr/bin/env python3
"""golden.py - picks small instances that Apache Kafka encoded: one a message and version for tests/unit/golden_messages.h, and of the
first and last version of each message for the fuzzers' seeds, bare and as request frames. Called by run.sh --golden:
golden.py HEADER CORPUS FILE..."""
import os
import struct
import sys

from compare import entries, our_messages

SIZE_MAX = 110


def name_hash(name):
    """As in tests/fuzz/fuzz_codec.c."""
    h = 2166136261
    for b in name.encode():
        h = (h ^ b) * 16777619 & 0xFFFFFFFF
    return (h ^ h >> 16) & 0xFFFF


def request_frame(message, version, body):
    """Behind the length: the request header, then the body."""
    head = struct.pack(">hhih2s", message["key"], version, 7, 2, b"me")
    return head + (b"\0" if version >= message["flexible"] else b"") + body


def write(folder, name, data):
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name), "wb") as f:
        f.write(data)


def main():
    header, corpus, files = sys.argv[1], sys.argv[2], sys.argv[3:]
    best = {}
    for path in files:
        for name, version, body in entries(path):
            old = best.get((name, version))
            fits = len(body) <= SIZE_MAX
            if old is None or (fits and len(old) > SIZE_MAX) or (fits and len(body) > len(old)) or (not fits and len(body) < len(old)):
                best[name, version] = body
    with open(header, "w", encoding="utf-8") as f:
        f.write("/* golden_messages.h - a message of each kind and version as Apache Kafka's own classes encode it; made by\n"
                " * tests/interop/schema/run.sh --golden, used by test_codec.c. */\n"
                "static const struct {\n    const char *name;\n    int16_t version;\n    const char *hex;\n} golden_messages[] = {\n")
        for (name, version), body in sorted(best.items()):
            f.write(f'    {{"{name}", {version}, "{body.hex()}"}},\n')
        f.write("};\n")
    messages = {m["name"]: m for m in our_messages()}
    for (name, version), body in best.items():
        m = messages[name]
        if version not in m["versions"]:
            continue
        write(os.path.join(corpus, "codec"), f"{name}_{version}", name_hash(name).to_bytes(2, "big") + bytes([version - m["versions"][0]]) + body)
        if m["kind"] == "request":
            write(os.path.join(corpus, "codec_frame"), f"{name}_{version}", request_frame(m, version, body))


if __name__ == "__main__":
    main()
