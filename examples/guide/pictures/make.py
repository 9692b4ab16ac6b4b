#!/usr/bin/env python3
"""Draws the guide's pictures: one function each. `examples/guide/pictures/make.py` writes the SVG files beside it; with --check it only tells stale ones."""
import sys
from html import escape
from pathlib import Path

INK, SOFT, LINE = "#1b1f24", "#57606a", "#8c959f"
BLUE, GREEN, AMBER, RED, GREY = "#cfe3ff", "#cdebd3", "#ffe4b3", "#ffd1cc", "#eaeef2"
HERE = Path(__file__).resolve().parent


class Picture:
    def __init__(self, width, height, title):
        self.width, self.height = width, height
        self.parts = [f"<title>{escape(title)}</title>", f'<rect width="{width}" height="{height}" fill="#ffffff"/>']

    def text(self, x, y, words, size=14, fill=INK, anchor="start", weight="normal", mono=False):
        family = "ui-monospace, monospace" if mono else "system-ui, sans-serif"
        self.parts.append(f'<text x="{x}" y="{y}" font-family="{family}" font-size="{size}" fill="{fill}" text-anchor="{anchor}" font-weight="{weight}">{escape(words)}</text>')

    def box(self, x, y, w, h, fill=GREY, words="", size=13, mono=False, stroke=LINE, dash=""):
        self.parts.append(f'<rect x="{x}" y="{y}" width="{w}" height="{h}" rx="4" fill="{fill}" stroke="{stroke}"{f" stroke-dasharray={chr(34)}{dash}{chr(34)}" if dash else ""}/>')
        if words:
            self.text(x + w / 2, y + h / 2 + size * 0.36, words, size, anchor="middle", mono=mono)

    def line(self, x1, y1, x2, y2, stroke=LINE, width=1.5, dash=""):
        self.parts.append(f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{stroke}" stroke-width="{width}"{f" stroke-dasharray={chr(34)}{dash}{chr(34)}" if dash else ""}/>')

    def arrow(self, x1, y1, x2, y2, stroke=INK, dash=""):
        length = ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5
        ux, uy = (x2 - x1) / length, (y2 - y1) / length
        bx, by = x2 - 9 * ux, y2 - 9 * uy
        self.line(x1, y1, bx, by, stroke, 1.6, dash)
        self.parts.append(f'<polygon points="{x2:.1f},{y2:.1f} {bx - 4 * uy:.1f},{by + 4 * ux:.1f} {bx + 4 * uy:.1f},{by - 4 * ux:.1f}" fill="{stroke}"/>')

    def svg(self):
        return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" width="{self.width}" height="{self.height}" role="img">\n' + "\n".join(self.parts) + "\n</svg>\n"


def segments():
    p = Picture(860, 404, "How a read finds offset 777 in a partition's folder")
    p.text(20, 28, "numbers-0/", 15, weight="bold", mono=True)
    p.text(130, 28, "which record has offset 777?", 14, SOFT)
    for i, (base, note, fill) in enumerate((("600", "", BLUE), ("0", "", GREY), ("1180", "written to", GREY))):
        x = {"0": 20, "600": 300, "1180": 580}[base]
        p.box(x, 60, 260, 56, fill)
        p.text(x + 12, 84, f"{int(base):020d}.log", 13, mono=True)
        p.text(x + 12, 105, {"0": "offsets 0 … 599", "600": "offsets 600 … 1179", "1180": "offsets 1180 …, written to"}[base], 13, SOFT)
    p.text(20, 150, "1  The names are sorted: a binary search finds the last one that is not above 777.", 14)
    p.arrow(620, 146, 540, 120)

    p.text(20, 196, "2  In its .index, sparse and sorted too: the last entry that is not above 777 (- 600 = 177).", 14)
    for i, (off, pos) in enumerate((("59", "1082"), ("99", "2164"), ("139", "3246"), ("179", "4328"), ("219", "5410"))):
        x = 40 + i * 118
        p.box(x, 210, 108, 34, BLUE if off == "139" else GREY, f"{off} → {pos}", mono=True)
    p.text(640, 232, "offset − 600 → position", 13, SOFT)

    p.text(20, 292, "3  From position 3246 the log is read on, batch by batch, until 777 comes: some kilobytes at most.", 14)
    for i in range(10):
        x = 40 + i * 74
        hit = i == 5
        p.box(x, 316, 68, 36, GREEN if hit else BLUE if i == 3 else GREY, ["660 …", "680 …", "700 …", "720 …", "740 …", "760 …", "780 …", "800 …", "820 …", "840 …"][i], 12)
    p.text(296, 372, "3246", 13, SOFT, "middle")
    p.text(444, 372, "777", 13, SOFT, "middle")
    p.text(20, 394, "Names are searched among segments, entries among those of one segment: the cost grows with the logarithm of the log.", 12, SOFT)
    return p


def isr():
    p = Picture(900, 330, "LEO of three replicas, HW and ISR at four moments")
    moments = (("1  all in sync", (5, 5, 5), 5, "0,1,2", "HW: the lowest LEO of the ISR"), ("2  broker 2 falls behind", (8, 8, 5), 5, "0,1,2", "the HW waits for it"),
               ("3  it leaves the ISR", (8, 8, 5), 8, "0,1", "after replica.lag.time.max.ms"), ("4  it has caught up", (9, 9, 9), 9, "0,1,2", "and is in sync again"))
    for i, (title, leos, hw, members, note) in enumerate(moments):
        x0 = 20 + i * 220
        p.text(x0, 30, title, 14, weight="bold")
        for r in range(3):
            y = 50 + r * 62
            inside = str(r) in members.split(",")
            p.text(x0, y + 14, f"broker {r}" + (" leads" if r == 0 else ""), 12, INK if inside else SOFT)
            for k in range(10):
                fill = "#ffffff" if k >= leos[r] else GREEN if k < hw else AMBER
                p.box(x0 + k * 19, y + 20, 17, 22, fill, str(k) if k < leos[r] else "", 11, stroke=LINE if k < leos[r] else GREY)
        x = x0 + hw * 19 - 1
        p.line(x, 60, x, 250, "#b42318", 2, "5 4")
        p.text(x, 266, f"HW {hw}", 12, "#b42318", "middle", "bold")
        p.text(x0, 290, f"ISR {members}", 13, weight="bold")
        p.text(x0, 308, note, 12, SOFT)
    p.text(20, 326, "green: below the HW, consumers see it; yellow: stored, not yet on every in-sync replica. A replica's LEO is where its row ends.", 12, SOFT)
    return p


def election():
    p = Picture(880, 320, "An election: order of the replicas decides, not length of the log")
    stages = (("Broker 0 leads, in epoch 0", (("0", "abcdef", 4, "leads"), ("1", "abcd", 4, ""), ("2", "abcde", 4, ""))),
              ("Broker 0 dies: 1 comes first", (("0", "abcdef", 4, "down"), ("1", "abcdg", 4, "leads, epoch 1"), ("2", "abcde", 4, ""))),
              ("All follow 1", (("0", "abcdg", 5, "cut back, refetched"), ("1", "abcdg", 5, "leads, epoch 1"), ("2", "abcdg", 5, "cut back, refetched"))))
    for i, (title, rows) in enumerate(stages):
        x0 = 20 + i * 295
        p.text(x0, 30, title, 14, weight="bold")
        for r, (broker, log, hw, note) in enumerate(rows):
            y = 50 + r * 70
            down = note == "down"
            p.text(x0, y + 14, f"broker {broker}" + (f": {note}" if note else ""), 12, SOFT if down else INK)
            for k, letter in enumerate(log):
                fill = GREY if down else GREEN if k < hw else RED if (letter in "ef") else AMBER
                p.box(x0 + k * 36, y + 22, 32, 30, fill, letter, 14, mono=True, dash="4 3" if down else "")
        if i < 2:
            p.arrow(x0 + 244, 150, x0 + 278, 150)
    p.text(20, 278, "a … d were on every in-sync replica: whoever of them leads has them. e and f were not: the new leader need not have them,", 12, SOFT)
    p.text(20, 296, "and writes g where e was. Followers ask where their history parts from the leader's (by leader epoch), and cut there.", 12, SOFT)
    p.text(20, 314, "Acknowledged with acks=all, nothing is lost. Acknowledged with acks=1, e and f were.", 12, SOFT)
    return p


def guarantees():
    p = Picture(880, 300, "Three orders of work and commit, and what a crash between them costs")
    rows = (("At most once", ("take", "commit", "work"), 2, "the record is never worked on: lost", RED), ("At least once", ("take", "work", "commit"), 2, "it is taken, and worked on, again: twice", AMBER),
            ("Exactly once", ("take", "work and position, in one step"), 1, "either both are there or neither: once", GREEN))
    for i, (name, steps, crash, cost, fill) in enumerate(rows):
        y = 40 + i * 86
        p.text(20, y + 26, name, 15, weight="bold")
        x = 160
        for k, step in enumerate(steps):
            w = 220 if len(step) > 8 else 92
            if k == crash:
                p.text(x + 15, y + 4, "crash", 12, "#b42318", "middle", "bold")
                p.line(x + 7, y + 12, x + 23, y + 28, "#b42318", 3)
                p.line(x + 23, y + 12, x + 7, y + 28, "#b42318", 3)
                x += 34
            p.box(x, y, w, 40, BLUE, step)
            x += w + 8
            if k + 1 < len(steps) and k + 1 != crash:
                p.arrow(x - 6, y + 20, x + 16, y + 20)
                x += 20
        p.box(560, y, 300, 40, fill, cost, 13)
    p.text(20, 290, "The producer's side is the same question: to send again when no answer came, or not; with an id, sending again stores nothing.", 12, SOFT)
    return p


def guid():
    p = Picture(860, 300, "A record with an id is stored once, whoever sends it")
    p.text(110, 30, "application", 14, anchor="middle", weight="bold")
    p.text(620, 30, "partition of a topic with message.guid.dedup=true", 14, anchor="middle", weight="bold")
    p.line(110, 42, 110, 225)
    p.line(470, 42, 470, 225)
    p.arrow(112, 66, 466, 66)
    p.text(290, 58, "ann pays 10, id 0189…8057", 13, anchor="middle")
    p.box(490, 50, 200, 32, GREEN, "offset 0: ann pays 10")
    p.text(700, 71, "index: 0189…8057 → 0", 13, SOFT)
    p.arrow(466, 100, 300, 100, "#b42318", "6 4")
    p.text(290, 92, "the answer is lost, or nobody is there to hear it", 13, "#b42318", "middle")
    p.line(100, 112, 120, 132, "#b42318", 3)
    p.line(120, 112, 100, 132, "#b42318", 3)
    p.text(132, 128, "killed; after its restart it sends again", 13, SOFT)
    p.arrow(112, 170, 466, 170)
    p.text(290, 162, "ann pays 10, id 0189…8057", 13, anchor="middle")
    p.box(490, 154, 200, 32, GREY, "found: nothing is stored", dash="4 3")
    p.arrow(466, 204, 114, 204)
    p.text(290, 197, "a duplicate: offset 0", 13, anchor="middle")
    p.text(20, 250, "The index is built from the log, by every replica for itself: it survives restarts, crashes and changes of leaders. The answer comes", 12, SOFT)
    p.text(20, 268, "only when the first copy is as safe as acks asks. Ids are known for message.guid.window.ms (an hour).", 12, SOFT)
    return p


def main():
    stale = []
    for draw in (segments, isr, election, guarantees, guid):
        file, text = HERE / f"{draw.__name__}.svg", draw().svg()
        if not file.exists() or file.read_text() != text:
            stale.append(file.name)
            if "--check" not in sys.argv:
                file.write_text(text)
    if stale and "--check" in sys.argv:
        print(f"not current: {', '.join(stale)}: examples/guide/pictures/make.py draws them anew")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
