"""Members of groups that are kcat's, and what kc sees of the groups."""
import json
import signal
import subprocess

import scene
from scene import kc


class Kcat:
    """A member of a group, until .end()."""

    def __init__(self, boot, group, *topics, **conf):
        conf = {"auto.offset.reset": "earliest", "session.timeout.ms": 6000, "auto.commit.interval.ms": 200, **{k.replace("_", "."): v for k, v in conf.items()}}
        args = ["kcat", "-b", boot, "-G", group, *topics, "-u", "-q"]
        for k, v in conf.items():
            args += ["-X", f"{k}={v}"]
        self.p = subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        scene._children.append(self.p)

    def end(self, sig=signal.SIGTERM):
        self.p.send_signal(sig)
        self.p.wait(30)


def described(b, group):
    r = kc(b, "group", "describe", group, "--json")
    return json.loads(r.stdout) if r.stdout else {}
