"""Configuration: properties as keyword arguments (linger_ms=5) or a dict with their names ({"linger.ms": 5})."""
from dataclasses import dataclass
from typing import Any, Dict, Iterator, List, Mapping, Optional

from ._fast import Keeper
from ._native import ffi, lib
from .errors import ConfigError, ErrorSlot, NoMemory, text


def _as_text(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, bool):
        return b"true" if value else b"false"
    if isinstance(value, (list, tuple)):
        return ",".join(str(v) for v in value).encode()
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value).encode()


@dataclass(frozen=True)
class Property:
    """One property of the library's table."""

    name: str
    aliases: List[str]
    scope: str
    type: str
    range: str
    default: str
    text: str


class Config:
    """Properties of a client, producer or consumer; Kafka's and librdkafka's names all work.

        Config({"bootstrap.servers": "localhost:9092"}, linger_ms=5)

    In keyword arguments the dots are underscores. None leaves a property at its default. An unknown name, or a value out of range, is a
    ConfigError, which names the nearest. A Config is a mapping of what was set, and may be shared and changed: clients take copies.
    """

    def __init__(self, properties: Optional[Mapping[str, Any]] = None, **named: Any) -> None:
        self._c: Any = ffi.gc(lib.kc_config_new(), lib.kc_config_free)
        if self._c == ffi.NULL:
            raise NoMemory()
        self._keep = Keeper(self._c)
        self._set: Dict[str, Any] = {}
        if isinstance(properties, Config):
            properties = properties._set
        for name, value in (properties or {}).items():
            self[name] = value
        for name, value in named.items():
            self[name.replace("_", ".")] = value

    def __setitem__(self, name: str, value: Any) -> None:
        if value is None:
            return
        raw_name, raw_value, slot = name.encode(), _as_text(value), ErrorSlot()
        if b"\0" in raw_name + raw_value:  # where C's strings end
            raise ConfigError(f"{name!r}: a zero byte is in no name and no value")
        slot.check(lib.kc_config_set(self._c, raw_name, raw_value, slot.p), name)
        self._set[name] = value

    def __getitem__(self, name: str) -> str:
        """The effective value as text, of defaults too. KeyError: no such property, or it has no value."""
        value = lib.kc_config_get(self._c, name.encode())
        if value == ffi.NULL:
            raise KeyError(name)
        return text(value)

    def get(self, name: str, default: Optional[str] = None) -> Optional[str]:
        try:
            return self[name]
        except KeyError:
            return default

    def __contains__(self, name: object) -> bool:
        return name in self._set

    def __iter__(self) -> Iterator[str]:
        return iter(self._set)

    def __len__(self) -> int:
        return len(self._set)

    def keys(self) -> List[str]:
        return list(self._set)

    def __repr__(self) -> str:
        return f"Config({self._set!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Config) and self._set == other._set

    def __reduce__(self) -> Any:
        return Config, (dict(self._set),)

    @staticmethod
    def properties() -> List[Property]:
        """Every property that there is, with its range, default and what it does."""
        out = ffi.new("kc_config_entry *")
        found: List[Property] = []
        while lib.kc_config_describe(len(found), out) == 0:
            aliases = [a for a in text(out.aliases).split(",") if a]
            found.append(Property(text(out.name), aliases, text(out.scope), text(out.type), text(out.range), text(getattr(out, "def")), text(out.text)))
        return found
