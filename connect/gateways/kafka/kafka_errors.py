"""Maps errors of the Kafka clients to Icefloe's errors, with the reason of a failed connection.

Rules of this file:
- librdkafka repeats failed connections without an end. A call then only times out, and the reason
  is in the client's error callback. ``ConnectionFailures`` keeps it for the next failed call.
- A refused login or certificate is reported at once, not at the end of the request's time: see
  ``unless_refused``.
- A refused login or certificate is retriable: secrets and certificates are replaced while the
  product runs, and every new client reads them again.
- An error of authorization names the missing ACL.

Source:
    Behaviour measured against Kafka 4.3.1 with confluent-kafka 2.16.1.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Final, TypeVar

from confluent_kafka import KafkaError, KafkaException

from connect.errors import ConfigError, Fenced, IcefloeError, RetriableError

Answer = TypeVar("Answer")

REFUSAL_CHECK_S = 1.0  # most logins take less

TOO_LARGE = "message_too_large"
UNAVAILABLE = "broker_unavailable"
LOGIN_REFUSED = "kafka_authentication"
TLS_FAILED = "kafka_tls"
REFUSED = "kafka_refused"
SERVICE = "kafka_service"

# the public constants of the client begin with an underscore
# ruff: noqa: SLF001
_FENCED = {
    KafkaError._FENCED,
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.FENCED_INSTANCE_ID,
}
_TOO_LARGE = {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE}
_LOGIN = {
    KafkaError._AUTHENTICATION,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.UNSUPPORTED_SASL_MECHANISM,
    KafkaError.ILLEGAL_SASL_STATE,
}
_TLS = {KafkaError._SSL}
_UNREACHABLE = {KafkaError._RESOLVE, KafkaError._TRANSPORT}
_NO_ANSWER = {
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError._MSG_TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._WAIT_COORD,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
}
_AUTHORIZATION = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "topic",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "group",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "transactional_id",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "cluster",
}
_MISSING = {
    KafkaError._UNSUPPORTED_FEATURE,
    KafkaError.UNSUPPORTED_VERSION,
    KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
}
# the last error of a request whose time was over, while librdkafka still repeats it
_NOT_YET = {
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError._WAIT_COORD,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.CONCURRENT_TRANSACTIONS,
}
_RANK_OF_LOGIN = 3
_RANK_OF_TLS = 2
_CODE_BY_RANK = {_RANK_OF_LOGIN: LOGIN_REFUSED, _RANK_OF_TLS: TLS_FAILED}
_ADVICE = {
    LOGIN_REFUSED: (
        "the broker refuses the login",
        "check sasl.mechanism and sasl.jaas.config",
    ),
    TLS_FAILED: ("the TLS connection fails", "check ssl.truststore.* and ssl.keystore.*"),
}


@dataclass(frozen=True, slots=True)
class RequiredAcls:
    """The ACLs that a request needs, by the kind of resource, as ``Write on Topic orders``."""

    topic: str = ""
    group: str = ""
    transactional_id: str = ""
    cluster: str = ""


NO_ACLS: Final = RequiredAcls()


def acls_of_transaction(
    transactional_id: str, topics: Collection[str], sources: Collection[str], group: str | None
) -> RequiredAcls:
    """Return the ACLs of a transaction.

    librdkafka does not say which request was refused, so operations on topics are named together.

    Args:
        transactional_id: of the producer.
        topics: get records.
        sources: topics whose offsets are stored.
        group: stores the offsets.
    """
    operations = [("Write", topics), ("Read", sources)]
    return RequiredAcls(
        topic=" and ".join(
            f"{operation} on Topic {', '.join(sorted(names))}"
            for operation, names in operations
            if names
        ),
        group=f"Read on Group {group}",
        transactional_id=f"Write on TransactionalId {transactional_id}",
        cluster="IdempotentWrite on Cluster, or Write on any Topic",
    )


class ConnectionFailures:
    """The most telling failure of one client's connections since its last answer.

    The client owns it through its error callback; it must not refer to the client, because a
    client without references ends at once, and one in a cycle does not.
    """

    def __init__(self) -> None:
        self._worst: KafkaError | None = None

    def note(self, error: KafkaError) -> None:
        """Take an error from librdkafka's callback."""
        if self._worst is None or _rank(error) >= _rank(self._worst):
            self._worst = error

    def forget(self) -> None:
        """Note that the client got an answer."""
        self._worst = None

    def served(self, serve: Callable[[], object]) -> KafkaError | None:
        """Return the failure, after ``serve`` has let the client run its callbacks.

        A refused login comes before TLS, and TLS before an unreachable broker.
        """
        with contextlib.suppress(KafkaException, SystemError, RuntimeError):
            serve()
        return self._worst

    @property
    def reason(self) -> str:
        """The failure as the end of a message; empty without one."""
        return "" if self._worst is None else f": {_explained(self._worst)}"

    @property
    def is_refusal(self) -> bool:
        """Whether a broker has refused the login or the TLS handshake."""
        return self._worst is not None and _rank(self._worst) in _CODE_BY_RANK

    def raise_refusal(self, doing: str) -> None:
        """Raise a refusal of the login or of the TLS handshake once.

        Raises:
            RetriableError: ``kafka_authentication`` or ``kafka_tls``.
        """
        if self._worst is not None and self.is_refusal:
            refused, self._worst = self._worst, None
            raise _unanswered(refused, doing, UNAVAILABLE)


def unless_refused(
    ask: Callable[[float], Answer],
    timeout_s: float,
    *,
    failures: ConnectionFailures,
    serve: Callable[[], object],
) -> Answer:
    """Return the answer to a request that blocks, but do not wait while the login is refused.

    librdkafka repeats a refused login until the time of a request is over, and runs no callback
    meanwhile. So the time is divided into parts, of which each is twice as long as the last.

    Args:
        ask: sends the request, or continues to wait for it, for so many seconds.
        timeout_s: for all parts.
        failures: of the client.
        serve: lets the client run its callbacks.

    Raises:
        KafkaException: as ``ask``; the refusal of the login or of the TLS handshake.
        TimeoutError: as ``ask``.
    """
    part_s, left_s = REFUSAL_CHECK_S, timeout_s
    while part_s < left_s:
        try:
            return ask(part_s)
        except TimeoutError:
            pass
        except KafkaException as e:
            error = e.args[0]
            # retriable: for example a broker that still loads its transactions after its start
            if error.code() not in _NOT_YET and not error.retriable():
                raise
        worst = failures.served(serve)
        if worst is not None and failures.is_refusal:
            raise KafkaException(worst)
        left_s -= part_s
        part_s *= 2
    return ask(left_s)


def map_error(
    error: BaseException,
    doing: str,
    *,
    code: str = UNAVAILABLE,
    needs: RequiredAcls = NO_ACLS,
    failure: KafkaError | None = None,
) -> IcefloeError:
    """The one mapping of the Kafka clients' exceptions to our tree.

    Args:
        error: KafkaException, SystemError of a fenced producer, or ValueError of a bad setting.
        doing: what was being done, for the message.
        code: code of the RetriableError when it is neither fencing nor configuration.
        needs: the ACLs that the request needs.
        failure: why the client's connections fail.
    """
    kafka = error.args[0] if isinstance(error, KafkaException) and error.args else None
    if not isinstance(kafka, KafkaError):
        return RetriableError(f"{doing}: {error}", code=code)
    text = f"{doing}: {kafka.str()}"
    if kafka.code() in _FENCED:
        return Fenced(text, code="fenced")
    if kafka.code() in _TOO_LARGE:
        return ConfigError(f"{text}; raise max.message.bytes of the topic", code=TOO_LARGE)
    if kafka.code() in _AUTHORIZATION:
        return ConfigError(text + _missing(kafka, needs), code=REFUSED)
    if kafka.code() in _MISSING:
        return RetriableError(f"{text} (the brokers do not have this function)", code=SERVICE)
    if kafka.code() == KafkaError._INVALID_ARG:
        return ConfigError(text, code=REFUSED)
    if kafka.code() in _LOGIN | _TLS:
        return _unanswered(kafka, doing, code)
    if kafka.code() in _NO_ANSWER and failure is not None:
        return _unanswered(failure, doing, code)
    return RetriableError(text, code=code)


@contextlib.contextmanager
def mapped(
    doing: str,
    *,
    code: str = UNAVAILABLE,
    needs: RequiredAcls = NO_ACLS,
    failures: ConnectionFailures | None = None,
    serve: Callable[[], object] = lambda: None,
) -> Iterator[None]:
    """Map what the clients raise inside the block.

    Args:
        doing: what is done inside, for the message.
        code: as for ``map_error``.
        needs: as for ``map_error``.
        failures: of the client that is used inside.
        serve: lets that client run its callbacks.
    """
    try:
        yield
    except (KafkaException, SystemError, BufferError) as e:
        worst = None if failures is None else failures.served(serve)
        if failures is not None and failures.is_refusal:
            failures.forget()  # the caller opens a new client
        raise map_error(e, doing, code=code, needs=needs, failure=worst) from e
    if failures is not None:
        failures.forget()


def _unanswered(failure: KafkaError, doing: str, code: str) -> RetriableError:
    kind = _CODE_BY_RANK.get(_rank(failure), code) if code == UNAVAILABLE else code
    return RetriableError(f"{doing}: {_explained(failure)}", code=kind)


def _explained(failure: KafkaError) -> str:
    if failure.code() == KafkaError._ALL_BROKERS_DOWN:
        # a broker that closes a connection without a reply gives no other reason
        return f"{failure.str()}, or end the connection: check security.protocol"
    if _rank(failure) not in _CODE_BY_RANK:
        return str(failure.str())
    reason, advice = _ADVICE[_CODE_BY_RANK[_rank(failure)]]
    return f"{reason}: {failure.str()}; {advice}"


def _missing(kafka: KafkaError, needs: RequiredAcls) -> str:
    needed = getattr(needs, _AUTHORIZATION[kafka.code()])
    return f"; this client's principal needs the ACL {needed}" if needed else ""


def _rank(error: KafkaError) -> int:
    code = error.code()
    if code in _LOGIN:
        return _RANK_OF_LOGIN
    # an alert that follows the handshake is an error of the transport
    if code in _TLS or "SSL routines" in error.str():
        return _RANK_OF_TLS
    return 1 if code in _UNREACHABLE else 0
