"""Types of native/*.c."""
import uuid
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple, Union, overload

from ._types import Data, Headers
from .errors import KafkaError, Outcome
from .guid import Guid

def set_main_thread(ident: Optional[int]) -> None: ...

class Keeper:
    def __init__(self, kept: object) -> None: ...

class Event:
    topic: Optional[str]
    partition: int
    kind: int
    offset: int
    address: int

class Record:
    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    leader_epoch: int
    key: Optional[bytes]
    value: Optional[bytes]
    headers: List[Tuple[str, Optional[bytes]]]
    guid: Optional[uuid.UUID]
    def header(self, name: str, default: Optional[bytes] = None, /) -> Optional[bytes]: ...

class RecordBatch:
    topic: str
    partition: int
    kind: int
    address: int
    next_offset: int
    high_watermark: int
    @property
    def offsets(self) -> memoryview: ...
    @property
    def timestamps(self) -> memoryview: ...
    @property
    def key_starts(self) -> memoryview: ...
    @property
    def key_sizes(self) -> memoryview: ...
    @property
    def value_starts(self) -> memoryview: ...
    @property
    def value_sizes(self) -> memoryview: ...
    def values(self) -> List[Optional[bytes]]: ...
    def keys(self) -> List[Optional[bytes]]: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Record]: ...
    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> RecordBatch: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

class Report:
    number: int
    topic: str
    partition: int
    offset: int
    timestamp: int
    size: int
    error: Optional[KafkaError]
    ok: bool
    outcome: Outcome
    duplicate: bool
    other_payload: bool
    offset_unknown: bool
    deduped: bool
    perhaps_own: bool
    def raise_for_error(self) -> Report: ...

class Sender:
    _track: int
    _next: int
    def send(self, topic: str, value: Data, key: Data = None, headers: Optional[Headers] = None, partition: Optional[int] = None,
             timestamp: Optional[int] = None, guid: Optional[Guid] = None, on_report: Optional[Callable[[Report], object]] = None) -> int: ...
    def send_many(self, topic: str, values: Any, keys: Any = None, partition: Optional[int] = None, timestamps: Optional[Sequence[int]] = None,
                  guids: Optional[Sequence[Optional[Guid]]] = None, headers: Optional[Sequence[Optional[Headers]]] = None,
                  on_report: Optional[Callable[[Report], object]] = None, sizes: Optional[Sequence[int]] = None,
                  key_sizes: Optional[Sequence[int]] = None) -> range: ...
    def _attach(self, client: int, producer: int, owner: object, topics: Dict[str, int], names: Dict[int, str],
                callbacks: Dict[int, Callable[[Report], object]], inbox: List[Report], enqueue_us: int) -> None: ...
    def _try_send(self, topic: int, value: Data, key: Data, headers: Optional[Headers], partition: Optional[int], timestamp: Optional[int],
                  guid: Optional[Guid], opaque: int, flags: int, timeout_us: int, /) -> int: ...
    def _take_reports(self, timeout_us: int, /) -> Union[List[Report], int]: ...
    def _drain(self, timeout_us: int, /) -> int: ...

class Source:
    _given: Optional[Tuple[str, int, int]]
    _batch: Optional[RecordBatch]
    def poll_batch(self, timeout: Optional[float] = None) -> Optional[RecordBatch]: ...
    def poll_record(self, timeout: Optional[float] = None) -> Optional[Record]: ...
    def __iter__(self) -> Iterator[Record]: ...
    def __next__(self) -> Record: ...
    def _attach(self, client: int, consumer: int, owner: object, names: Dict[int, str]) -> None: ...
    def _poll(self, timeout_us: int, /) -> Union[RecordBatch, Event, int]: ...
    def _forget(self) -> None: ...
