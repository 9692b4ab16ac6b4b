"""kc and kbroker as a person uses them: right and wrong words, exit codes, Ctrl-C, pipes, JSON that goes round."""
import base64
import json
import os
import pty
import signal
import socket
import subprocess
import threading
import time

from scene import KBROKER, KC, Broker, equal, eventually, holds, kc, line_of, main, run, test, until_caught


# Those with operands and options, in an order in which one's examples find what the others' made.
COMMANDS = [["topic", "create"], ["topic", "list"], ["topic", "describe"], ["topic", "alter"], ["produce"], ["guid", "get"], ["guid", "stats"], ["consume"], ["config", "describe"], ["config", "alter"],
            ["config", "explain"], ["cluster"], ["bench", "produce"], ["bench", "consume"], ["bench", "latency"], ["topic", "delete"]]


@test
def wrong_words_are_usage_errors_that_name_the_right_one(folder):
    for args, words in (
        (["topc"], ["topic"]), (["topic", "craete", "x"], ["create"]), (["produce", "--topci", "x"], ["--topic"]), (["produce"], ["-t TOPIC"]),
        (["consume", "-t", "x", "-c", "many"], ["whole number"]), (["consume", "-t", "x", "-f", "%y"], ["%y"]), (["topic", "create"], ["TOPIC"]),
        (["produce", "-t", "x", "--set", "lingr.ms=1"], ["linger.ms"]), (["produce", "-t", "x", "-z", "zip"], ["compression"]),
        (["consume", "-t", "x", "-o", "middle"], ["middle", "beginning"]), (["bench", "produec"], ["produce"]), (["topic", "create", "x", "--config", "novalue"], ["NAME=VALUE"]),
        (["produce", "-t", "x", "-p", "-2"], ["--partition", "0 to 2147483647"]), (["produce", "-t", "x", "-p", "4294967296"], ["0 to 2147483647"]),
        (["consume", "-t", "x", "-p", "-1"], ["0 to 2147483647"]), (["consume", "-t", "x", "-c", "0"], ["from 1"]), (["produce", "-t", "x", "--rate", "0"], ["from 1"]),
        (["topic", "create", "x", "--partitions", "99999999999"], ["1 to 2147483647"]), (["topic", "create", "x", "--rf", "40000"], ["32767"]),
        (["produce", "-t", "x", "--base64"], ["--json"]), (["consume", "-t", "x", "--base64"], ["--json"]), (["consume", "-t", "x", "--json", "-f", "%s"], ["-f", "--json"]),
        (["produce", "-t", "x", "--json", "-K", ":"], ["-K", "--json"]), (["bench", "produce", "-t", "x", "--payload", "xml"], ["rand", "json"]), (["bench", "produce", "-t", "x", "--e2e"], ["--e2e"]),
        (["bench", "produce", "-t", "x", "--partitions", "4294967297"], ["2147483647"]), (["config", "describe", "broker", "x"], ["kc cluster"]),
        (["config", "alter", "broker", "x", "--config", "a=b"], ["kc cluster"]),
    ):
        b = Broker(folder / "d") if args[:2] == ["consume", "-t"] and "middle" in args else None
        r = run(KC, *args, *(["-b", b.address] if b else []))
        if b:
            kc(b, "topic", "create", "x")
            r = run(KC, *args, "-b", b.address)
        equal(r.returncode, 2, " ".join(args))
        equal(r.stdout, "", "stdout of " + " ".join(args))
        holds(r.stderr, *words)
    for args, words in ((["rnu"], ["run"]), (["run", "--dta", "x"], ["--data"]), (["run", "--set", "log.segmnt.bytes=1", "--data", folder / "e"], ["log.segment.bytes"]),
                        (["run", "--set", "num.partitions=zero", "--data", folder / "e"], ["num.partitions"]), (["run", "--data", ""], ["--data", "value"]),
                        (["run", "--listen", "127.0.0.1:99999"], ["65535"]), (["run", "--set", "log.dirs=/a,/b"], ["log.dirs", "name one"]), (["run", "/dev/null", "two"], ["two", "one properties file"]),
                        (["run", "--profile", "relaible"], ["reliable"])):
        r = run(KBROKER, *args)
        equal(r.returncode, 2, f"kbroker {args}")
        holds(r.stderr, *words)


@test
def help_fits_a_terminal(folder):
    for args in [[KBROKER], [KBROKER, "run"], [KBROKER, "explain"], [KC, "topic"], [KC, "config"], [KC, "bench"], [KC], *([KC, *c] for c in COMMANDS)]:
        r = run(*args, "--help")
        equal((r.returncode, r.stderr), (0, ""), f"{args} --help")
        equal([line for line in r.stdout.splitlines() if len(line) > 80], [], f"lines of {args} --help")
        equal("examples:" in r.stdout, args[1:] in COMMANDS or args[0] == KBROKER, f"examples of {args}")
    r = run(KC, "config", "explain")
    equal([line for line in r.stdout.splitlines() if len(line) > 80 and " " in line.strip()[:80] and "also:" not in line], [], "lines of kc config explain")


@test
def the_examples_of_help_run(folder):
    b = Broker(folder / "d")
    (folder / "bin").mkdir()
    wrapper = folder / "bin" / "kc"  # the broker is not at the default port
    wrapper.write_text(f'#!/bin/sh\ncase "$1$2" in configexplain) exec {KC} "$@" ;; *) exec {KC} "$@" -b {b.address} ;; esac\n')
    wrapper.chmod(0o755)
    (folder / "users.txt").write_text("1:ann\n2:bob\n")
    env = {**os.environ, "PATH": f"{folder}/bin:{os.environ['PATH']}"}
    count = 0
    for command in COMMANDS:
        lines = run(KC, *command, "--help").stdout.split("examples:\n")[1].replace("|\n", "|")
        for line in lines.splitlines():
            r = run("bash", "-c", "set -o pipefail; " + line, env=env, cwd=folder)
            equal((r.returncode, r.stderr), (0, ""), line)
            count += 1
    equal(count >= len(COMMANDS), True)
    equal(kc(b, "consume", "-t", "copy", "-o", "beginning", "-e", "-f", "%s ").stdout, "1 2 3 4 5 6 7 8 9 10 ")


@test
def records_go_round(folder):
    b = Broker(folder / "d")
    r = kc(b, "topic", "create", "t", "--partitions", 1)
    equal((r.returncode, r.stdout), (0, "created topic t\n"))
    r = kc(b, "produce", "-t", "t", "-K", ":", "-H", "h=v", "-Z", stdin="a:1\nb:\n:3\nplain\n")
    equal(r.returncode, 0, r.stderr)
    r = kc(b, "consume", "-t", "t", "-o", "beginning", "-e", "-f", "%o|%k|%K|%s|%S|%h|%p|%t\\n")
    equal(r.stdout, "0|a|1|1|1|h=v|0|t\n1|b|1||-1|h=v|0|t\n2||-1|3|1|h=v|0|t\n3||-1|plain|5|h=v|0|t\n")
    lines = kc(b, "consume", "-t", "t", "-o", "beginning", "-e", "--json", "--base64").stdout
    equal([json.loads(x)["value"] for x in lines.splitlines()], ["MQ==", None, "Mw==", "cGxhaW4="])
    kc(b, "topic", "create", "u")
    equal(kc(b, "produce", "-t", "u", "--json", "--base64", stdin=lines).returncode, 0)
    again = kc(b, "consume", "-t", "u", "-o", "beginning", "-e", "--json", "--base64").stdout
    equal(again, lines.replace('"topic":"t"', '"topic":"u"'), "records copied by JSON")
    many = json.dumps({"key": None, "value": "v", "headers": [[f"h{i}", str(i)] for i in range(3000)]})
    equal(kc(b, "topic", "create", "headers").returncode, 0)
    equal(kc(b, "produce", "-t", "headers", "--json", stdin=many + "\n").returncode, 0)
    got = json.loads(kc(b, "consume", "-t", "headers", "-o", "beginning", "-e", "--json").stdout)
    equal(got["headers"], json.loads(many)["headers"], "3000 headers")
    equal(kc(b, "consume", "-t", "t", "-o", "-1", "-e").stdout, "plain\n")
    equal(kc(b, "consume", "-t", "t", "-o", "1", "--to", "3", "-f", "%o ").stdout, "1 2 ")
    equal(kc(b, "consume", "-t", "t", "-o", "@0", "-c", "2", "-f", "%o ").stdout, "0 1 ")
    equal(kc(b, "consume", "-t", "t", "-o", "@99999999999999", "-e").stdout, "")
    equal(b.stop(), 0)


@test
def failures_say_what_failed_and_exit_1(folder):
    b = Broker(folder / "d", "--set", "auto.create.topics.enable=false")
    r = kc(b, "consume", "-t", "missing", "-e")
    equal(r.returncode, 1)
    holds(r.stderr, "missing", "UNKNOWN_TOPIC_OR_PARTITION")
    kc(b, "topic", "create", "small", "--config", "max.message.bytes=1000")
    r = kc(b, "produce", "-t", "small", "-z", "none", stdin=os.urandom(3000).hex() + "\nok\n")
    equal(r.returncode, 1)
    holds(r.stderr, "record 1", "1 of 2 records failed")
    equal(kc(b, "consume", "-t", "small", "-o", "beginning", "-e").stdout, "ok\n")
    r = kc(b, "produce", "-t", "small", stdin="fine\n" + "x" * 2000000 + "\nbehind\n")
    equal(r.returncode, 1)
    holds(r.stderr, "record 2", "KC_TOO_LARGE", "max.request.size", "nothing behind input line 2")
    equal(kc(b, "consume", "-t", "small", "-o", "-1", "-e").stdout, "fine\n")
    for name, word in (("a/b", "a/b"), (".", "."), ("x" * 250, "249"), ("", "")):
        r = kc(b, "topic", "create", name)
        equal(r.returncode, 1, f"topic create {name!r}")
        holds(r.stderr, "INVALID_TOPIC_EXCEPTION", word)
    kc(b, "topic", "create", "a.b")
    holds(kc(b, "topic", "create", "a_b").stderr, "a.b")
    holds(kc(b, "topic", "create", "c", "--config", "retention.ms=soon").stderr, "INVALID_CONFIG", "retention.ms")
    holds(kc(b, "topic", "create", "c", "--rf", 3).stderr, "INVALID_REPLICATION_FACTOR")
    kc(b, "topic", "create", "g", "--partitions", 3)
    holds(kc(b, "topic", "alter", "g", "--partitions", 2).stderr, "INVALID_PARTITIONS")
    r = run(KC, "cluster", "-b", "127.0.0.1:1", "--set", "default.api.timeout.ms=1500")
    equal(r.returncode, 1)
    holds(r.stderr, "127.0.0.1:1", "refused")


@test
def a_JSON_line_that_is_no_record_says_why_and_is_not_sent(folder):
    b = Broker(folder / "d")
    kc(b, "topic", "create", "t")
    for line, words in (
        ('x', ["line 1", "expected"]), ('[1]', ["object"]), ('\n{"valu": "3"}', ["line 2", "valu", "did you mean 'value'"]), ('{"value": 3}', ["value", "text"]),
        ('{"value": "a", "partition": 4294967296}', ["partition"]), ('{"value": "a", "partition": "0"}', ["partition"]), ('{"value": "a", "timestamp": "now"}', ["timestamp"]),
        ('{"value": "a", "headers": {"a": "b"}}', ["headers"]), ('{"value": "a", "headers": [["a", 1]]}', ["header", "text"]), ('{"value": "a"} {}', ["end of file"]),
    ):
        r = kc(b, "produce", "-t", "t", "--json", stdin=line + "\n")
        equal(r.returncode, 1, line)
        holds(r.stderr, *words)
    r = kc(b, "produce", "-t", "t", "--json", "--base64", stdin='{"key": "!!"}\n')
    equal(r.returncode, 1)
    holds(r.stderr, "key is not base64")
    equal(kc(b, "produce", "-t", "t", "--json", stdin='{"value": null, "timestamp": -1, "timestamp_type": "none", "topic": "other", "offset": 7}\n').returncode, 0)
    equal(kc(b, "consume", "-t", "t", "-o", "beginning", "-e", "-f", "%o %S\\n").stdout, "0 -1\n")


@test
def any_bytes_go_round_and_no_input_sends_nothing(folder):
    b = Broker(folder / "d")
    kc(b, "topic", "create", "t", "--partitions", 1)
    equal(kc(b, "produce", "-t", "t").returncode, 0)
    equal(kc(b, "produce", "-t", "t", "-l", "/dev/null").returncode, 0)
    key, value = bytes(i for i in range(256) if i != 10), bytes(range(255, 10, -1))
    equal(kc(b, "produce", "-t", "t", "-K", "\\x00:\\xff", stdin=key + b"\0:\xff" + value + b"\n").returncode, 0)
    equal(kc(b, "produce", "-t", "t", "-D", "\\0", stdin=b"two\nlines\0last").returncode, 0)
    equal(kc(b, "produce", "-t", "t", stdin=b"\n").returncode, 0)
    raw = subprocess.run([KC, "consume", "-b", b.address, "-t", "t", "-o", "beginning", "-e", "-f", "%K,%k,%S,%s|"], capture_output=True, timeout=60).stdout
    wanted = [(key, value), (b"", b"two\nlines"), (b"", b"last"), (b"", b"")]
    equal(raw, b"".join(b"%d,%s,%d,%s|" % (len(k) or -1, k, len(v), v) for k, v in wanted))
    lines = kc(b, "consume", "-t", "t", "-o", "beginning", "-e", "--json", "--base64").stdout
    equal([(base64.b64decode(o["key"] or ""), base64.b64decode(o["value"])) for o in map(json.loads, lines.splitlines())], wanted)
    kc(b, "topic", "create", "u", "--partitions", 1)
    equal(kc(b, "produce", "-t", "u", "--json", "--base64", stdin=lines).returncode, 0)
    again = subprocess.run([KC, "consume", "-b", b.address, "-t", "u", "-o", "beginning", "-e", "-f", "%K,%k,%S,%s|"], capture_output=True, timeout=60).stdout
    equal(again, raw, "copied by JSON and base64")


@test
def the_limit_of_a_call_is_the_one_that_was_set_and_troubles_are_shown_meanwhile(folder):
    for args in (["topic", "list"], ["topic", "create", "x"], ["topic", "delete", "x"], ["topic", "describe", "x"], ["topic", "alter", "x", "--partitions", "2"], ["cluster"],
                 ["config", "describe", "topic", "x"], ["config", "alter", "topic", "x", "--config", "a=b"], ["consume", "-t", "x"], ["bench", "consume", "-t", "x"],
                 ["bench", "produce", "-t", "x"]):
        # 25 s: less than the limit without --set, so a command that does not know it is caught.
        r = run(KC, *args, "-b", "127.0.0.1:1", "--set", "default.api.timeout.ms=700", timeout=25)
        equal(r.returncode, 1, " ".join(args))
        holds(r.stderr, "127.0.0.1:1", "refused", "times)", "kbroker run")
        equal(r.stderr.index("ALL_BROKERS_DOWN") < r.stderr.index("tried:"), True, "the trouble is told while it lasts")


@test
def a_port_that_speaks_something_else_is_named_once(folder):
    with socket.create_server(("127.0.0.1", 0)) as web:
        def serve():
            try:
                while True:
                    with web.accept()[0] as c:
                        c.recv(1000)
                        c.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
            except OSError:
                pass  # closed: the test is over
        threading.Thread(target=serve, daemon=True).start()
        r = run(KC, "topic", "list", "-b", f"127.0.0.1:{web.getsockname()[1]}", "--set", "default.api.timeout.ms=1500", timeout=25)
        web.shutdown(socket.SHUT_RDWR)
    equal(r.returncode, 1)
    holds(r.stderr, "HTTP", "times)")
    equal(sum(line.startswith("kc: error: 127") for line in r.stderr.splitlines()), 1, r.stderr)


@test
def a_broker_that_is_not_there_is_named(folder):
    b = Broker(folder / "d")
    r = kc(b, "config", "describe", "broker", "7", timeout=25)
    equal(r.returncode, 1)
    holds(r.stderr, "no broker 7", "kc cluster")
    holds(kc(b, "config", "alter", "broker", "", "--config", "log.retention.ms=1000000").stdout, "altered all brokers")
    holds(kc(b, "topic", "describe", "missing").stderr, "kc topic list")


@test
def output_that_cannot_be_written_is_a_failure(folder):
    b = Broker(folder / "d")
    kc(b, "topic", "create", "t")
    kc(b, "produce", "-t", "t", stdin="line\n" * 5000)
    for command in ("topic list", "cluster", "consume -t t -o beginning -e", "--help"):
        for where, why in ((">/dev/full", "No space left"), (">&-", "Bad file descriptor")):
            r = run("bash", "-c", f"{KC} {command} {'' if 'help' in command else '-b ' + b.address} {where}")
            equal((r.returncode, r.stdout), (1, ""), f"{command} {where}")
            holds(r.stderr, "standard output", why)
    equal(run("bash", "-c", f"{KC} produce -t t -b {b.address} <&-").returncode, 1)
    equal(kc(b, "consume", "-t", "t", "-o", "-1", "-e", "-f", "%o").stdout, "4999", "nothing was sent from a closed input")


def interrupt(args, ready, **kw):
    p = subprocess.Popen([KC, *args], stdin=kw.get("stdin", subprocess.DEVNULL), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    seen = b""
    if ready:
        while ready not in seen:
            more = os.read(p.stderr.fileno(), 4096)
            if not more:
                break
            seen += more
    else:
        until_caught(p, signal.SIGINT)
        time.sleep(0.7)  # and most likely it is at work: nothing tells of it
    p.send_signal(signal.SIGINT)
    try:
        out, err = p.communicate(timeout=8)  # the waits that it breaks are 10 s and longer
    except subprocess.TimeoutExpired:
        p.kill()
        p.communicate()
        raise AssertionError(f"{args}: Ctrl-C does not end it") from None
    return p.returncode, out.decode(), (seen + err).decode()


@test
def ctrl_c_ends_every_long_command(folder):
    b = Broker(folder / "d")
    kc(b, "topic", "create", "t")
    nobody = ["-b", "127.0.0.1:1"]
    for args in (["consume", "-t", "t"], ["bench", "consume", "-t", "t"], ["bench", "produce", "-t", "t"], ["bench", "latency", "-t", "t"]):
        rc, out, err = interrupt([*args, *nobody], b"ALL_BROKERS_DOWN")
        equal((rc, out), (1, ""), f"{args} without a broker")
        holds(err, "interrupted")
    (folder / "line").write_text("x\n")
    for args in (["produce", "-t", "t", "-l", folder / "line"], ["produce", "-t", "t", "--guid", "-l", folder / "line"], ["guid", "get", "-t", "t", "0" * 32]):
        rc, out, err = interrupt([*args, *nobody], b"ALL_BROKERS_DOWN")
        equal((rc, out), (1, ""), f"{args} without a broker")
    for args in (["bench", "consume", "-t", "t"], ["bench", "produce", "-t", "t", "--count", "1000000000", "--rate", "20"], ["bench", "latency", "-t", "t", "--count", "10000000", "--rate", "20"],
                 ["bench", "latency", "-t", "t", "--count", "10000000"], ["bench", "latency", "-t", "t", "--e2e", "--rate", "20"]):
        rc, out, err = interrupt([*args, "-b", b.address], b"")
        equal((rc, out), (1, ""), f"{args}: no figures")
        holds(err, "interrupted after")
    with subprocess.Popen(["sleep", "60"], stdout=subprocess.PIPE) as never:
        rc, _, err = interrupt(["produce", "-t", "t", "-b", b.address], b"", stdin=never.stdout)
        never.kill()
    equal(rc, 1)
    holds(err, "interrupted after 0 records")


@test
def ctrl_c_ends_a_follower_and_a_producer(folder):
    b = Broker(folder / "d")
    kc(b, "topic", "create", "t")
    kc(b, "produce", "-t", "t", stdin="first\n")
    p = subprocess.Popen([KC, "consume", "-b", b.address, "-t", "t", "-o", "beginning"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    equal(line_of(p), "first\n", "it follows")
    p.send_signal(signal.SIGINT)
    p.communicate(timeout=10)
    equal(p.returncode, 0, "consume after Ctrl-C")
    p = subprocess.Popen([KC, "produce", "-b", b.address, "-t", "t", "--rate", "100"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    p.stdin.write(b"x\n" * 2000)
    p.stdin.flush()
    eventually("it sends", lambda: "x\n" in kc(b, "consume", "-t", "t", "-o", "beginning", "-e").stdout)
    p.send_signal(signal.SIGINT)
    try:
        out = p.communicate(timeout=10)
    except BrokenPipeError:
        out = (b"", p.stderr.read())
        p.wait(10)
    equal(p.returncode, 1, "produce after Ctrl-C")
    holds(out[1].decode(), "interrupted")


@test
def a_pipe_that_closes_ends_consume_quietly(folder):
    b = Broker(folder / "d")
    kc(b, "topic", "create", "t")
    kc(b, "produce", "-t", "t", stdin="line\n" * 50000)
    r = run("bash", "-c", f"set -o pipefail; {KC} consume -b {b.address} -t t -o beginning -e | head -1")
    equal(r.stdout, "line\n")
    equal(r.stderr, "")


@test
def progress_is_for_terminals_only(folder):
    b = Broker(folder / "d")
    kc(b, "topic", "create", "t")
    r = kc(b, "produce", "-t", "t", "--rate", "200", stdin="x\n" * 200)
    equal(r.stderr, "")
    master, slave = pty.openpty()
    p = subprocess.Popen([KC, "produce", "-b", b.address, "-t", "t", "--rate", "400"], stdin=subprocess.PIPE, stdout=slave, stderr=slave)
    os.close(slave)
    p.stdin.write(b"x\n" * 600)
    p.stdin.close()
    p.wait(30)
    seen = os.read(master, 65536).decode()
    os.close(master)
    holds(seen, "produced", "600 records produced")


@test
def describe_and_config_speak_json(folder):
    b = Broker(folder / "d")
    kc(b, "topic", "create", "t", "--partitions", 2, "--config", "retention.ms=1234567")
    kc(b, "produce", "-t", "t", "-p", 1, stdin="a\nb\n")
    t = json.loads(kc(b, "topic", "describe", "t", "--json").stdout)
    equal(t["name"], "t")
    equal([(p["partition"], p["leader"], p["replicas"], p["isr"], p["log_start"], p["hw"], p["leo"]) for p in t["partitions"]], [(0, 0, [0], [0], 0, 0, 0), (1, 0, [0], [0], 0, 2, 2)])
    holds(kc(b, "config", "describe", "topic", "t").stdout, "retention.ms=1234567")
    equal(kc(b, "config", "alter", "topic", "t", "--delete-config", "retention.ms").returncode, 0)
    equal("1234567" in kc(b, "config", "describe", "topic", "t").stdout, False)
    equal(kc(b, "topic", "alter", "t", "--partitions", 3).returncode, 0)
    eventually("the new partition is led", lambda: len(json.loads(kc(b, "topic", "describe", "t", "--json").stdout)["partitions"]) == 3)
    c = json.loads(kc(b, "cluster", "--json").stdout)
    equal((c["controller"], c["topics"], c["partitions"], c["leaderless"]), (0, 1, 3, 0))
    equal(kc(b, "topic", "delete", "t").returncode, 0)
    equal(kc(b, "topic", "list").stdout, "")
    holds(run(KC, "config", "explain", "queue.buffering.max.ms").stdout, "linger.ms")
    equal(run(KC, "config", "explain", "no.such").returncode, 1)
    explained = [json.loads(line) for line in run(KC, "config", "explain", "--json").stdout.splitlines()]
    equal([e["default"] for e in explained if e["name"] == "linger.ms"], ["5"])
    equal(json.loads(run(KC, "config", "explain", "--json", "queue.buffering.max.ms").stdout)["name"], "linger.ms")


main()
