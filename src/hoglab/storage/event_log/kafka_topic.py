"""The topic of Kafka that is the event log: its address, making it, and what it takes."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hoglab.storage.database.errors import DatabaseError, UnsupportedDatabaseError
from hoglab.storage.event_log.partitions import MAX_PARTITIONS
from hoglab.storage.server_address import ServerAddress

try:
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic
except ImportError as error:
    raise UnsupportedDatabaseError(
        "Kafka needs its client: install hoglab with it (pip install 'hoglab[kafka]')"
    ) from error

if TYPE_CHECKING:
    from collections.abc import Mapping

    from confluent_kafka.admin import TopicMetadata

PARTITIONS = 16
"""Number of partitions of a new topic; it never changes."""

MAX_RECORD_BYTES = 16 * 1024 * 1024
"""Maximum size of a record in a new topic; above the largest event that capture accepts."""

ANSWER_S = 10.0
"""Time limit for a broker to answer at the start."""

_OF_CLIENTS = frozenset(
    {"security.protocol", "sasl.mechanism", "sasl.username", "sasl.password", "ssl.ca.location"}
)
_OF_TOPICS = frozenset({"partitions", "replicas", "transactions"})
_SOON = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.LEADER_NOT_AVAILABLE)
_SWITCH = {"on": True, "off": False}


@dataclass(frozen=True, slots=True)
class KafkaAddress:
    """Parts of a URL ``kafka://host:port,host:port/topic?partitions=16``.

    Further parameters: ``replicas`` of a topic that is made (default: the brokers'), ``transactions`` (on, off), and
    those of the client for TLS and authentication, by librdkafka's names. ``client`` has them.
    """

    brokers: str
    topic: str
    partitions: int = PARTITIONS
    replicas: int = -1
    transactions: bool = True
    client: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def parse(cls, url: str) -> KafkaAddress:
        """Raise `UnsupportedDatabaseError` for what is no such address."""
        try:
            return cls._parsed(url)
        except ValueError as error:
            raise UnsupportedDatabaseError(
                f"the address of the event log is not understood: {error}"
            ) from None

    @classmethod
    def _parsed(cls, url: str) -> KafkaAddress:
        address = ServerAddress.parse(url, _OF_CLIENTS | _OF_TOPICS)
        given = address.parameters
        if not url.startswith("kafka://") or not address.hosts or not address.path or "/" in address.path:
            raise ValueError("it must look like kafka://host:9092,host:9092/topic?partitions=16")
        if address.user is not None:
            raise ValueError("name and password are given as sasl.username and sasl.password")
        try:
            partitions, replicas = int(given.pop("partitions", PARTITIONS)), int(given.pop("replicas", -1))
        except ValueError:
            raise ValueError("partitions and replicas must be whole numbers") from None
        if not 1 <= partitions <= MAX_PARTITIONS:
            raise ValueError(f"partitions must be from 1 to {MAX_PARTITIONS}")
        transactions = given.pop("transactions", "on")
        if transactions not in _SWITCH:
            raise ValueError("transactions must be on or off")
        return cls(address.hosts, address.path, partitions, replicas, _SWITCH[transactions], given)

    @property
    def name(self) -> str:
        """Name of the log in messages."""
        return f"the topic {self.topic} of Kafka"

    def settings(self, **more: Any) -> dict[str, Any]:
        """Return settings of a client of librdkafka; ``more`` with ``_`` for dots."""
        ours = {name.replace("_", "."): value for name, value in more.items()}
        # What its log would say of brokers that are away, our errors say.
        return {"bootstrap.servers": self.brokers, "log_level": 2, **self.client, **ours}


def prepared(address: KafkaAddress) -> int:
    """See that the topic is there, making it where it is not; the largest record that it takes.

    Raises `DatabaseError`, also when it has another number of partitions.
    """
    admin = AdminClient(address.settings())
    deadline = time.monotonic() + ANSWER_S
    try:
        if _topic(admin, address).error is not None:
            _make(admin, address)
        while True:
            try:
                return _checked(admin, address)
            except KafkaException as error:
                # One that was just made is not known to all brokers at once.
                if error.args[0].code() not in _SOON or time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
    except KafkaException as error:
        raise DatabaseError(f"{address.name} does not answer: {reason(error)}") from error


def _topic(admin: AdminClient, address: KafkaAddress) -> TopicMetadata:
    """Return the metadata of the topic; its ``error`` is set when the brokers do not know it."""
    metadata = admin.list_topics(address.topic, timeout=ANSWER_S).topics[address.topic]
    if metadata.error is not None and metadata.error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
        raise KafkaException(metadata.error)
    return metadata


def _checked(admin: AdminClient, address: KafkaAddress) -> int:
    """Return the largest record that the topic takes, once it can be written to."""
    topic = _topic(admin, address)
    if topic.error is not None:
        raise KafkaException(topic.error)
    if len(topic.partitions) != address.partitions:
        raise DatabaseError(
            f"{address.name} has {len(topic.partitions)} partitions, not {address.partitions}: the number stays as it "
            "was when it was made"
        )
    if any(partition.leader < 0 for partition in topic.partitions.values()):
        raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
    resource = ConfigResource(ConfigResource.Type.TOPIC, address.topic)
    settings = admin.describe_configs([resource], request_timeout=ANSWER_S)[resource].result()
    return int(settings["max.message.bytes"].value)


def _make(admin: AdminClient, address: KafkaAddress) -> None:
    wanted = NewTopic(
        address.topic,
        num_partitions=address.partitions,
        replication_factor=address.replicas,
        config={"max.message.bytes": str(MAX_RECORD_BYTES)},
    )
    try:
        admin.create_topics([wanted], operation_timeout=ANSWER_S)[address.topic].result()
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:  # another process made it
            raise


def reason(error: KafkaException) -> str:
    """Return text of an error, in one line."""
    return str(error.args[0].str()) if isinstance(error.args[0], KafkaError) else str(error)
