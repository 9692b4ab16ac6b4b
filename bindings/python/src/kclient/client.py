"""The client: connections, metadata, memory budget and loop, shared by the producers, consumers and admin calls made on it."""
import logging
import os
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, NamedTuple, Optional, Union

from ._fast import Keeper
from ._native import ffi, lib
from ._wait import micros, wait
from .config import Config
from .errors import ErrorSlot, Invalid, text

if TYPE_CHECKING:
    from types import TracebackType

log = logging.getLogger("kclient")
_LEVELS = {3: logging.ERROR, 4: logging.WARNING, 6: logging.INFO, 7: logging.DEBUG}
LOG_SIZE = 1024


class LogLine(NamedTuple):
    """One line of the client's log; level as in the logging module."""

    level: int
    at_ms: int
    text: str


class Client:
    """A client of one cluster.

        with Client(bootstrap_servers="localhost:9092") as client:
            producer, consumer = Producer(client), Consumer(client, group_id="billing")

    Arguments: properties as Config takes them. Making one does not wait for a connection. Any thread may use it; a forked child must
    make its own. close() ends the roles' connections; roles are closed before it.
    """

    def __init__(self, properties: Optional[Mapping[str, Any]] = None, **named: Any) -> None:
        self.config = properties if isinstance(properties, Config) and not named else Config(properties, **named)
        out, slot = ffi.new("kc_client **"), ErrorSlot()
        slot.check(lib.kc_client_new(self.config._c, out, slot.p), "client")
        self.handle: Any = ffi.gc(out[0], lib.kc_client_free)
        self._keep = Keeper(self.handle)
        self._pid = os.getpid()
        self._topics: Dict[str, int] = {}
        self._names: Dict[int, str] = {}
        self._closed = False

    def topic(self, name: str) -> int:
        """The number by which C knows a topic, for as long as the client lives. Invalid: no name that a topic can have."""
        number = self._topics.get(name)
        if number is None:
            number = lib.kc_client_topic(self.handle, name.encode()) if "\0" not in name else 0
            if number == 0:
                raise Invalid(f"no topic can be called {name!r}: 1 to 249 letters, digits, '.', '_' and '-'")
            self._topics[name] = number
            self._names[number] = name
        return number

    def topic_name(self, number: int) -> str:
        """The topic's name; "" for an unknown number."""
        name = self._names.get(number)
        if name is None:
            name = text(lib.kc_client_topic_name(self.handle, number))
            if name:
                self._names[number] = name
                self._topics[name] = number
        return name

    def fileno(self) -> int:
        """A descriptor that is readable when something is ready (kc_client_fd). Never read or close it."""
        return int(lib.kc_client_fd(self.handle))

    def logs(self) -> List[LogLine]:
        """Takes the log lines that wait. Waiting calls pass them on to the logger `kclient` by themselves (drain_logs)."""
        level, at, line = ffi.new("int32_t *"), ffi.new("int64_t *"), ffi.new("char[]", LOG_SIZE)
        lines = []
        while lib.kc_client_log(self.handle, level, at, line, LOG_SIZE):
            lines.append(LogLine(_LEVELS.get(level[0], logging.INFO), at[0], text(line)))
        return lines

    def drain_logs(self) -> None:
        for line in self.logs():
            log.log(line.level, "%s", line.text)

    def close(self, timeout: Optional[float] = 10.0) -> None:
        """Closes the connections. Roles that are still open fail what they have."""
        if self._closed:
            return
        self._closed = True
        slot = ErrorSlot()
        code = wait(lambda us: int(lib.kc_client_close(self.handle, us, slot.p)), micros(timeout))
        if os.getpid() == self._pid:
            self.drain_logs()
        if code not in (lib.KC_CLOSED, lib.KC_FORKED):
            slot.check(code, "close")

    @property
    def closed(self) -> bool:
        return self._closed

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, kind: Any, value: Any, trace: "Optional[TracebackType]") -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Client of {self.config.get('bootstrap.servers')}{', closed' if self._closed else ''}>"


Place = Union[Client, Mapping[str, Any], None]


def client_of(place: Place, named: Dict[str, Any]) -> "tuple[Client, Optional[Config], bool]":
    """What Producer(...), Consumer(...) and Admin(...) share: the client, the role's own configuration, and whether the client is the role's to close."""
    if isinstance(place, Client) or hasattr(place, "handle"):
        return place, Config(**named) if named else None, False  # type: ignore[return-value]
    return Client(place, **named), None, True


def effective(client: Client, config: Optional[Config]) -> Config:
    """What a role goes by: its own properties (None: it has none), and the client's for the rest."""
    if config is None:
        return client.config
    return Config({**client.config._set, **config._set})
