"""Types of what goes into records."""
from typing import Iterable, Mapping, Tuple, Union

Data = Union[bytes, bytearray, memoryview, str, None]
"""A key or value: str as UTF-8, None as Kafka's null."""
Headers = Union[Mapping[str, Data], Iterable[Tuple[str, Data]]]
