"""Reads segment files itself: batches, offset index and time index must agree, entry by entry.

kafka-dump-log lets many faults of a time index pass, so this looks closer: an index entry is (last offset of a batch, where the
batch starts); a time index entry is (T, O) with T the largest timestamp of all batches up to the one that holds O.
"""
import struct

HEADER = struct.Struct(">qiibIhiqqqhii")   # a record batch's first 61 bytes


def batches(log):
    """[(position, base offset, last offset, max timestamp)] of a .log file; raises ValueError where it is not one."""
    data, at, out = log.read_bytes(), 0, []
    while at < len(data):
        if len(data) - at < HEADER.size:
            raise ValueError(f"{log}: {len(data) - at} bytes too few for a batch at {at}")
        base, size, _, magic, _, _, last, _, top, *_, count = HEADER.unpack_from(data, at)
        if magic != 2 or size < HEADER.size - 12 or at + 12 + size > len(data):
            raise ValueError(f"{log}: no whole batch at {at} (magic {magic}, size {size})")
        out.append((at, base, base + last, top if count else -1))   # an empty batch dates nothing
        at += 12 + size
    return out


def entries(path, fmt):
    """Entries of an index file; zeros at its end (an open segment's padding) are none."""
    s, data = struct.Struct(fmt), path.read_bytes()
    out = [s.unpack_from(data, i) for i in range(0, len(data) - s.size + 1, s.size)]
    while out and len(out) > 1 and not any(out[-1]):
        out.pop()
    return out


def index_problems(log, found):
    base = int(log.stem)
    starts, bad, before = {b[0]: b for b in found}, [], (-1, -1)
    for offset, position in entries(log.with_suffix(".index"), ">ii"):
        b = starts.get(position)
        if not b or b[2] != base + offset:
            bad.append(f"{log.stem}.index of {log.parent.name}: ({base + offset}, {position}) is not a batch's")
        if (offset, position) <= before or offset <= before[0]:
            bad.append(f"{log.stem}.index of {log.parent.name}: {offset} after {before[0]}")
        before = (offset, position)
    return bad


def time_index_problems(log, found):
    base, bad, before, i, top = int(log.stem), [], (-1, -1), 0, -1
    for t, offset in entries(log.with_suffix(".timeindex"), ">qi"):
        if not found and (t, offset) == (0, 0):
            break
        while i < len(found) and found[i][1] <= base + offset:
            top = max(top, found[i][3])
            i += 1
        if t != top:
            bad.append(f"{log.stem}.timeindex of {log.parent.name}: {t} at {base + offset}, but the largest up to there is {top}")
        if t <= before[0] or offset < before[1]:
            bad.append(f"{log.stem}.timeindex of {log.parent.name}: ({t}, {offset}) after {before}")
        before = (t, offset)
    return bad


def problems(folders, holes=False):
    """holes: compaction leaves some."""
    bad = []
    for folder in folders:
        expected = None
        for log in sorted(folder.glob("*.log")):
            try:
                found = batches(log)
            except ValueError as e:
                bad.append(str(e))
                continue
            for _, first, last, _ in found:
                if expected is not None and (first < expected if holes else first != expected):
                    bad.append(f"{log}: a batch at {first}, {expected} was due")
                expected = last + 1
            if found and found[0][1] < int(log.stem):
                bad.append(f"{log}: starts with offset {found[0][1]}")
            bad += index_problems(log, found) + time_index_problems(log, found)
    return bad[:10]
