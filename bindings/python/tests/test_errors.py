"""Errors and configuration: the class of each code, what str() tells, what crosses a process boundary."""
import pickle

import kclient
import pytest
from kclient import errors
from kclient._native import lib


def test_version_is_the_library_s() -> None:
    assert kclient.__version__ == errors.text(lib.kc_version())


def test_every_code_of_the_library_has_a_class_written_down() -> None:
    codes = {getattr(lib, n): n for n in dir(lib) if n.startswith("KC_") and isinstance(getattr(lib, n), int) and -1500 <= getattr(lib, n) <= -1100}
    assert len(codes) > 20
    for code, name in codes.items():
        cls = errors.error_class(code)
        assert cls.default_code == code and getattr(errors, cls.__name__) is cls, name
        assert cls().name == name


def test_classes_of_kafka_s_codes_are_made_by_name() -> None:
    cls = errors.UnknownTopicOrPartition
    assert issubclass(cls, kclient.BrokerError) and cls.default_code == 3 and cls is errors.error_class(3)
    assert errors.NotLeaderOrFollower().retriable
    with pytest.raises(AttributeError):
        errors.NoSuchThing


def test_natural_bases() -> None:
    assert issubclass(kclient.TimedOut, TimeoutError)
    assert issubclass(kclient.ConfigError, ValueError)
    assert issubclass(kclient.TransportError, ConnectionError)


def test_text_has_name_outcome_and_attempts() -> None:
    attempt = errors.Attempt(at_ms=1_700_000_000_123, broker=2, cause=lib.KC_TRANSPORT, phase="connect", detail="refused")
    e = kclient.TimedOut("send: gave up", outcome=kclient.Outcome.MAYBE_PERSISTED, attempts=(attempt,))
    assert str(e).startswith("KC_TIMED_OUT: send: gave up (retriable, maybe persisted)\n  ")
    assert str(e).endswith(".123 broker 2 connect: KC_TRANSPORT refused")
    again = pickle.loads(pickle.dumps(e))
    assert type(again) is kclient.TimedOut and str(again) == str(e) and again.attempts == e.attempts


def test_kafka_errors_are_pickled_too() -> None:
    e = errors.UnknownTopicOrPartition("x")
    again = pickle.loads(pickle.dumps(e))
    assert type(again) is errors.UnknownTopicOrPartition and again.message == "x"


def test_config_names() -> None:
    c = kclient.Config({"linger.ms": 7, "enable.idempotence": True}, bootstrap_servers=["a:1", "b:2"], client_id=None)
    assert c["queue.buffering.max.ms"] == "7" and c["bootstrap.servers"] == "a:1,b:2" and c["enable.idempotence"] == "true"
    assert c.keys() == ["linger.ms", "enable.idempotence", "bootstrap.servers"] and "client.id" not in c
    assert pickle.loads(pickle.dumps(c)) == c
    with pytest.raises(kclient.ConfigError, match='did you mean "linger.ms"'):
        kclient.Config(lingr_ms=5)
    with pytest.raises(kclient.ConfigError, match="linger.ms"):
        kclient.Config(linger_ms="soon")
    with pytest.raises(KeyError):
        c["no.such.thing"]


def test_config_table() -> None:
    table = {p.name: p for p in kclient.Config.properties()}
    assert "queue.buffering.max.ms" in table["linger.ms"].aliases and table["linger.ms"].default == "5"


def test_client_topics_and_close() -> None:
    with kclient.Client(bootstrap_servers="127.0.0.1:1") as client:
        number = client.topic("orders")
        assert client.topic("orders") == number and client.topic_name(number) == "orders" and client.topic_name(999) == ""
        with pytest.raises(kclient.Invalid, match="a/b"):
            client.topic("a/b")
        assert client.fileno() > 0
    assert client.closed
    client.close()
