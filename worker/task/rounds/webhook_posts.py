"""Posts rows to webhooks before their source offsets are stored.

Rules of this file:
- At least once: offsets are stored after the server has accepted all rows. Rows that it did not
  accept are dead letters. A task that ends in between posts its rows again, with equal ids.
- A batch that is not accepted is repeated for a limited time. Then, with ``errors.tolerance`` all,
  its rows and the remaining ones of the answer become dead letters, so that a server that is down
  does not stop the tables. Otherwise the task restarts from the stored offsets.
- Nothing is read meanwhile, so the rows that wait are bounded.
- A stop waits for the rows as long as for a batch. Then the answer is given up between two
  requests, and its rows are posted again after the next start.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

import structlog

from connect.backoff import BackoffPolicy
from connect.clock import Clock
from connect.config.connector import ConnectorConfig
from connect.config.output_config import OUTPUT_PREFIX, OutputConfig
from connect.errors import ConfigError, RetriableError
from connect.gateways.kafka.kafka_clients import ProducerMessage
from connect.gateways.webhook import Webhook, WebhookAddress
from worker.batch.messages import OutputRow
from worker.task.read_ledger import TaskAnnouncement
from worker.task.task_context import TaskStop

BATCH_BYTES: Final = 512 * 2**10
RETRY_POLICY: Final = BackoffPolicy(first_ms=200, longest_ms=5_000)
HEADER: Final = "__icefloe.output."

log = structlog.get_logger("worker.task")


class RowsServer(Protocol):
    """Takes rows; see ``Webhook``."""

    def post_within(
        self, duration_ms: int, body: bytes, idempotency_key: str, wait: Callable[[int], bool]
    ) -> None:
        """Send rows, for a limited time."""
        ...

    def close(self) -> None:
        """Close connections."""
        ...


@dataclass(slots=True)
class PostedRows:
    """What became of the rows of an answer.

    Attributes:
        posted: number of rows that servers accepted.
        refused: number of rows that they did not accept.
        dead_letters: these rows, where the connector has a dead letter topic.
    """

    posted: int = 0
    refused: int = 0
    dead_letters: list[ProducerMessage] = field(default_factory=list)


def _ignored() -> None:
    """Nothing counts the progress."""


@dataclass(slots=True)
class WebhookPosts:
    """The webhooks of one task.

    Args:
        config: the connector, placeholders resolved.
        servers: by the number of their output.
        stop: ends the wait before a repetition, and later the posts of an answer.
        clock: monotonic time.
        on_progress: called before each post and repetition: an answer may take hours.
    """

    config: ConnectorConfig
    servers: Mapping[int, RowsServer]
    stop: TaskStop
    clock: Clock
    on_progress: Callable[[], None] = _ignored

    @classmethod
    def of(
        cls,
        config: ConnectorConfig,
        clock: Clock,
        stop: TaskStop,
        on_progress: Callable[[], None] = _ignored,
    ) -> WebhookPosts:
        """Return the webhooks of a connector.

        Raises:
            ConfigError: ``webhook``: an address is no HTTP address.
        """
        servers = {
            number: Webhook(
                WebhookAddress(
                    output.webhook.url,
                    output.webhook.authorization,
                    key=f"{OUTPUT_PREFIX}{output.name}.webhook.url",
                    is_of_operator=False,
                ),
                clock,
                RETRY_POLICY,
            )
            for number, output in enumerate(config.outputs)
            if output.webhook is not None
        }
        return cls(config, servers, stop, clock, on_progress)

    def post(self, answer: TaskAnnouncement) -> PostedRows:
        """Post the rows of an answer.

        Raises:
            RetriableError: ``webhook_unavailable``, and refusals are not tolerated, or the task
                stops.
            ConfigError: ``webhook_refused``, and refusals are not tolerated; ``host_refused``.
        """
        result = PostedRows()
        for number, server in self.servers.items():
            rows = (
                row
                for batch in answer.batches
                for chunk in batch.messages
                for row in chunk.output_rows(number)
            )
            self._post(self.config.outputs[number], server, rows, result)
        return result

    def close(self) -> None:
        """Close connections."""
        for server in self.servers.values():
            server.close()

    def _post(
        self, output: OutputConfig, server: RowsServer, rows: Iterable[OutputRow], out: PostedRows
    ) -> None:
        assert output.webhook is not None
        refusal: RetriableError | ConfigError | None = None
        for batch in _batches(rows, output.webhook.batch_rows):
            self.on_progress()
            if self.stop.must_cancel(self.clock.monotonic_ms()):
                raise RetriableError(
                    f"the task stops before the webhook of output {output.name} has all rows; they "
                    "are posted again after the next start",
                    code="webhook_unavailable",
                )
            if refusal is None:
                refusal = self._refusal_of(output, server, batch)
            if refusal is None:
                out.posted += len(batch)
                continue
            out.refused += len(batch)
            out.dead_letters += self._dead_letters(output, batch, refusal)

    def _refusal_of(
        self, output: OutputConfig, server: RowsServer, batch: list[OutputRow]
    ) -> RetriableError | ConfigError | None:
        """Post a batch until it is accepted; return the error with which its rows are given up."""
        body = self._body(output, batch)
        ids = "\n".join(row.id for row in batch)
        key = batch[0].id if len(batch) == 1 else hashlib.sha256(ids.encode()).hexdigest()
        assert output.webhook is not None
        try:
            server.post_within(output.webhook.retry_ms, body, key, self.may_repeat_after)
        except RetriableError as error:
            if self.stop.is_stopping:  # the rows are posted again after the next start
                raise
            return self._tolerated(output, error)
        except ConfigError as error:
            if error.code != "webhook_refused":
                raise
            return self._tolerated(output, error)
        return None

    def may_repeat_after(self, duration_ms: int) -> bool:
        """Wait before a repetition; return whether the task continues."""
        self.on_progress()
        if not self.stop.is_stopping:
            self.stop.pause(duration_ms)
        return not self.stop.is_stopping

    def _tolerated(
        self, output: OutputConfig, error: RetriableError | ConfigError
    ) -> RetriableError | ConfigError:
        if not self.config.errors.tolerance_all:
            raise error
        log.warning(
            "rows of an output not accepted",
            connector=self.config.name,
            output=output.name,
            code=error.code,
            error=error.message,
        )
        return error

    def _body(self, output: OutputConfig, batch: list[OutputRow]) -> bytes:
        head = json.dumps({"connector": self.config.name, "output": output.name})[:-1]
        return b'%s, "rows": [%s]}' % (head.encode(), b",".join(map(_row_json, batch)))

    def _dead_letters(
        self, output: OutputConfig, batch: list[OutputRow], error: RetriableError | ConfigError
    ) -> Iterator[ProducerMessage]:
        topic = self.config.errors.dead_letter_topic
        if not topic:
            return
        for row in batch:
            headers = {"name": output.name, "id": row.id, "error": error.message}
            yield ProducerMessage(
                topic,
                row.key,
                row.value,
                tuple((HEADER + name, text.encode()) for name, text in headers.items()),
                row.timestamp_ms,
            )


def _batches(rows: Iterable[OutputRow], rows_max: int) -> Iterator[list[OutputRow]]:
    batch: list[OutputRow] = []
    size = 0
    for row in rows:
        if batch and (len(batch) >= rows_max or size + len(row.value) > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(row)
        size += len(row.value)
    if batch:
        yield batch


def _row_json(row: OutputRow) -> bytes:
    head = {
        "id": row.id,
        "topic": row.topic,
        "partition": row.partition,
        "offset": row.offset,
        "timestamp": row.timestamp_ms,
        "key": None if row.key is None else row.key.decode("utf-8", "replace"),
    }
    return b'%s, "value": %s}' % (json.dumps(head)[:-1].encode(), row.value)
