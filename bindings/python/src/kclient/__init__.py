"""kclient: a client for the Apache Kafka protocol, and (kclient.testing) a broker to test against.

    from kclient import Producer, Consumer, Admin

    with Producer(bootstrap_servers="localhost:9092") as producer:
        producer.send("greetings", "hello")
"""
from . import errors
from ._version import __version__
from .client import Client, LogLine
from .config import Config, Property
from .errors import (Action, AllBrokersDown, Attempt, BadGuid, BrokerError, Busy, Cancelled, Closed, ConfigError, Corrupt, DataLost, DeliveryFailed,
                     Expired, Forked, Invalid, KafkaError, Lost, NotAssigned, Outcome, QueueFull, TimedOut, TooLarge, TransportError, Unsupported, Woken)
from .guid import Guid, guid_bytes, new_guid

__all__ = [
    "Action", "AllBrokersDown", "Attempt", "BadGuid", "BrokerError", "Busy", "Cancelled", "Client", "Closed", "Config", "ConfigError", "Corrupt",
    "DataLost", "DeliveryFailed", "Expired", "Forked", "Guid", "Invalid", "KafkaError", "LogLine", "Lost", "NotAssigned", "Outcome", "Property",
    "QueueFull", "TimedOut", "TooLarge", "TransportError", "Unsupported", "Woken", "__version__", "errors", "guid_bytes", "new_guid",
]
