"""kclient: a client for the Apache Kafka protocol, and (kclient.testing) a broker to test against.

    from kclient import Producer, Consumer, Admin

    with Producer(bootstrap_servers="localhost:9092") as producer:
        producer.send("greetings", "hello")
"""
from . import errors
from ._version import __version__
from ._fast import Record, RecordBatch, Report
from .admin import Admin, NewTopic
from .client import Client, LogLine
from .config import Config, Property
from .consumer import (BEGINNING, COMMITTED, END, RESET, Assigned, Consumer, ConsumerError, LostPartitions, PartitionEnd, Revoked, TopicPartition,
                       Why)
from .errors import (Action, AllBrokersDown, Attempt, BadGuid, BrokerError, Busy, Cancelled, Closed, ConfigError, Corrupt, DataLost, DeliveryFailed,
                     Expired, Forked, Invalid, KafkaError, Lost, NotAssigned, Outcome, QueueFull, TimedOut, TooLarge, TransportError, Unsupported, Woken)
from .guid import Guid, guid_bytes, new_guid
from .producer import Producer, ProducerStats

__all__ = [
    "Action", "Admin", "AllBrokersDown", "Assigned", "Attempt", "BEGINNING", "BadGuid", "BrokerError", "Busy", "COMMITTED", "Cancelled", "Client",
    "Closed", "Config", "ConfigError", "Consumer", "ConsumerError", "Corrupt", "DataLost", "DeliveryFailed", "END", "Expired", "Forked", "Guid",
    "Invalid", "KafkaError", "LogLine", "Lost", "LostPartitions", "NewTopic", "NotAssigned", "Outcome", "PartitionEnd", "Producer", "ProducerStats",
    "Property", "QueueFull", "RESET", "Record", "RecordBatch", "Report", "Revoked", "TimedOut", "TooLarge", "TopicPartition", "TransportError",
    "Unsupported", "Why", "Woken", "__version__", "errors", "guid_bytes", "new_guid",
]
