"""Exceptions. Every failure is a KafkaError with its history: what failed, what became of the record or request, what was tried.

There is a class for each code, so that `except` can name it: those of the library's own codes stand below; those of Kafka's codes are made
from the library's table when they are first asked for (`kclient.errors.UnknownTopicOrPartition` for UNKNOWN_TOPIC_OR_PARTITION).
"""
import enum
import time
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Tuple, Type

from ._native import ffi, lib

NULL = ffi.NULL


class Outcome(enum.IntEnum):
    """What became of a record or request."""

    NOT_PERSISTED = 0
    """Certainly not in the log."""
    MAYBE_PERSISTED = 1
    """It was sent, and no answer came."""
    PERSISTED = 2
    """In the log, as acks asked."""


class Action(enum.IntEnum):
    """What the application can do about an error."""

    NONE = 0
    RETRY = 1
    ABORT_TXN = 2
    RECREATE = 3
    FIX_CONFIG = 4


@dataclass(frozen=True)
class Attempt:
    """One thing that was tried before an error: when, with which broker, in which phase, and why it failed."""

    at_ms: int
    broker: int
    cause: int
    phase: str
    detail: str

    def __str__(self) -> str:
        at = time.strftime("%H:%M:%S", time.localtime(self.at_ms / 1000)) + f".{self.at_ms % 1000:03d}"
        where = f"broker {self.broker} " if self.broker >= 0 else ""
        return f"{at} {where}{self.phase}: {code_name(self.cause)}{' ' + self.detail if self.detail else ''}"


class KafkaError(Exception):
    """Base of all errors of this package.

    code: 0 and above Kafka's protocol codes, -1000 and below the library's own. name: its name. message: what failed, where, why, what to do.
    retriable: the same call may succeed later. fatal: the producer or consumer cannot go on. outcome: what became of the record or request.
    action: what the application can do. attempts: what was tried, oldest first. accepted: of a call that takes many records, how many it took.
    results: of a call over several items, what became of each (admin_data.ItemResult, or TopicPartition).
    """

    default_code: int = -1

    def __init__(self, message: str = "", *, code: Optional[int] = None, retriable: Optional[bool] = None, fatal: bool = False,
                 outcome: Outcome = Outcome.NOT_PERSISTED, action: Action = Action.NONE, attempts: Tuple[Attempt, ...] = (), accepted: int = 0) -> None:
        self.code = self.default_code if code is None else code
        self.name = code_name(self.code)
        self.message = message or code_text(self.code)
        self.retriable = bool(lib.kc_err_retriable(self.code)) if retriable is None else retriable
        self.fatal = fatal
        self.outcome = outcome
        self.action = action
        self.attempts = attempts
        self.accepted = accepted
        self.results: List[Any] = []
        super().__init__(self.message)

    def __str__(self) -> str:
        notes = [name for name, on in (("fatal", self.fatal), ("retriable", self.retriable)) if on]
        if self.outcome != Outcome.NOT_PERSISTED:
            notes.append(self.outcome.name.lower().replace("_", " "))
        text = f"{self.name}: {self.message}" + (f" ({', '.join(notes)})" if notes else "")
        return "\n  ".join([text, *(str(a) for a in self.attempts)])

    def __reduce__(self) -> Any:
        return _rebuild, (type(self).__name__, dict(self.__dict__))


def _rebuild(class_name: str, state: Dict[str, Any]) -> KafkaError:
    """An error that crossed to another process (pickle)."""
    known = globals().get(class_name)
    cls = known if isinstance(known, type) and issubclass(known, KafkaError) else error_class(state["code"])
    e = cls(state["message"], code=state["code"])
    e.__dict__.update(state)
    return e


class BrokerError(KafkaError):
    """A broker's answer: one of Kafka's own codes."""


class Closed(KafkaError):
    """The producer, consumer or client was closed."""

    default_code = lib.KC_CLOSED


class Forked(KafkaError):
    """Used in a forked child: make a client of its own there (README: fork and threads)."""

    default_code = lib.KC_FORKED


class Reentrant(KafkaError):
    """Called from inside a callback that must not call it."""

    default_code = lib.KC_REENTRANT


class Busy(KafkaError):
    """Another thread polls this consumer."""

    default_code = lib.KC_BUSY


class Woken(KafkaError):
    """wake() ended the wait."""

    default_code = lib.KC_WOKEN


class Invalid(KafkaError, ValueError):
    """An argument is out of range or missing."""

    default_code = lib.KC_INVALID


class NoMemory(KafkaError, MemoryError):
    """An allocation failed, or the client's memory budget is used up."""

    default_code = lib.KC_NO_MEMORY


class ConfigError(KafkaError, ValueError):
    """A configuration name or value is wrong; the message names the nearest."""

    default_code = lib.KC_CONFIG


class Unsupported(KafkaError):
    """The broker cannot do it; the message says which version could."""

    default_code = lib.KC_UNSUPPORTED


class NotAssigned(KafkaError):
    """The partition is not assigned to this consumer."""

    default_code = lib.KC_NOT_ASSIGNED


class Lost(KafkaError):
    """The assignment that the call belongs to is over."""

    default_code = lib.KC_LOST


class Cancelled(KafkaError):
    """A purge, a cancel or a free ended it."""

    default_code = lib.KC_CANCELLED


class BadGuid(KafkaError, ValueError):
    """Not one 16-byte id."""

    default_code = lib.KC_BAD_GUID


class TimedOut(KafkaError, TimeoutError):
    """The caller's own limit passed; attempts say what was tried."""

    default_code = lib.KC_TIMED_OUT


class QueueFull(KafkaError, BufferError):
    """No room in the producer's queue within the time given; the record was not accepted."""

    default_code = lib.KC_QUEUE_FULL


class Expired(TimedOut):
    """The record's deadline (delivery.timeout.ms) passed."""

    default_code = lib.KC_EXPIRED


class TooLarge(KafkaError, ValueError):
    """The record can never fit: max.request.size or message.max.bytes."""

    default_code = lib.KC_TOO_LARGE


class TransportError(KafkaError, ConnectionError):
    """A connection failed; the attempts say how."""

    default_code = lib.KC_TRANSPORT


class ResolveError(TransportError):
    """A host name could not be resolved."""

    default_code = lib.KC_RESOLVE


class AllBrokersDown(TransportError):
    """No bootstrap address or known broker could be reached."""

    default_code = lib.KC_ALL_BROKERS_DOWN


class TlsError(TransportError):
    """TLS failed."""

    default_code = lib.KC_TLS


class BadMessage(KafkaError):
    """A broker's answer does not follow the protocol."""

    default_code = lib.KC_BAD_MESSAGE


class Corrupt(KafkaError):
    """A fetched batch fails its CRC or does not parse."""

    default_code = lib.KC_CORRUPT


class TooBigAnswer(KafkaError):
    """An answer passes receive.message.max.bytes."""

    default_code = lib.KC_TOO_BIG_ANSWER


class DataLost(KafkaError):
    """Records that were consumed are no longer in the log."""

    default_code = lib.KC_DATA_LOST


class DeliveryFailed(KafkaError):
    """Records that were accepted without an on_report were not delivered: reports has them (the first thousand), count says how many.

    Raised by flush() and close(). The other attributes are those of the first one's error.
    """

    def __init__(self, reports: List[Any], count: int) -> None:
        first = reports[0].error
        super().__init__(f"{count} record{'s' if count != 1 else ''} not delivered; the first, of {reports[0].topic}: {first.message}", code=first.code,
                         retriable=first.retriable, fatal=first.fatal, outcome=first.outcome, action=first.action, attempts=first.attempts)
        self.reports = reports
        self.count = count

    def __reduce__(self) -> Any:
        return DeliveryFailed, (self.reports, self.count)


def code_name(code: int) -> str:
    """A code's name, e.g. NOT_LEADER_OR_FOLLOWER, KC_QUEUE_FULL."""
    return text(lib.kc_err_name(code))


def code_text(code: int) -> str:
    """What a code means, one sentence."""
    return text(lib.kc_err_text(code))


def text(p: Any) -> str:
    """A string of C's; "" for NULL."""
    return "" if p == NULL else ffi.string(p).decode("utf-8", "replace")


def _camel(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


_classes: Dict[int, Type[KafkaError]] = {c.default_code: c for c in list(globals().values())
                                         if isinstance(c, type) and issubclass(c, KafkaError) and c.default_code != -1}


def error_class(code: int) -> Type[KafkaError]:
    """The class of a code; Kafka's are made when first asked for."""
    cls = _classes.get(code)
    if cls is None:
        known = code >= -1 and code_name(code) != code_name(32000)  # what is in no table has the name of an unknown code
        base = BrokerError if code >= -1 else KafkaError
        cls = type(_camel(code_name(code)), (base,), {"default_code": code, "__doc__": code_text(code), "__module__": __name__}) if known else base
        _classes[code] = cls
    return cls


_by_name: Dict[str, int] = {}


def __getattr__(name: str) -> Type[KafkaError]:
    if not _by_name:
        _by_name.update({_camel(code_name(code)): code for code in range(-1, 256) if code and code_name(code) != code_name(32000)})
    if name in _by_name:
        return error_class(_by_name[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _attempts(e: Any) -> Tuple[Attempt, ...]:
    out = ffi.new("kc_attempt *")
    found = []
    for i in range(lib.kc_error_attempt_count(e)):
        if lib.kc_error_attempt(e, i, out) == 0:
            found.append(Attempt(out.at_ms, out.broker, out.cause, text(out.phase), text(out.detail)))
    return tuple(found)


def borrowed(e: Any, accepted: int = 0) -> KafkaError:
    """The exception of a `const kc_error *`, which stays its owner's."""
    code = lib.kc_error_code(e)
    return error_class(code)(text(lib.kc_error_message(e)), code=code, retriable=bool(lib.kc_error_retriable(e)), fatal=bool(lib.kc_error_fatal(e)),
                             outcome=Outcome(lib.kc_error_outcome(e)), action=Action(lib.kc_error_action(e)), attempts=_attempts(e), accepted=accepted)


def at_address(address: int, code: int) -> KafkaError:
    """The same for the address of one, or a bare code where there is none (native/)."""
    return borrowed(ffi.cast("const kc_error *", address)) if address else of_code(code)


def of_code(code: int, what: str = "", accepted: int = 0) -> KafkaError:
    """The exception of a bare code: what was called, and what the code means."""
    return error_class(code)(f"{what}: {code_text(code)}" if what else "", code=code, accepted=accepted)


class ErrorSlot:
    """A `kc_error **` to hand to C, and what to do with what comes back."""

    __slots__ = ("p",)

    def __init__(self) -> None:
        self.p: Any = ffi.new("kc_error **")

    def check(self, code: int, what: str = "") -> None:
        """Raises unless code is KC_OK; frees what C gave."""
        if code == 0 and self.p[0] == NULL:
            return
        error = self.take(code, what)
        if code != 0:
            raise error

    def take(self, code: int, what: str = "") -> KafkaError:
        """The exception, with its history where C told one."""
        if self.p[0] == NULL:
            return of_code(code, what)
        try:
            error = borrowed(self.p[0])
            return error if error.code == code else of_code(code, what)
        finally:
            lib.kc_error_free(self.p[0])
            self.p[0] = NULL


def check(code: int, what: str = "") -> None:
    """Raises the exception of a code that is not KC_OK."""
    if code != 0:
        raise of_code(code, what)
