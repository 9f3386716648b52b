"""Live checks of a configuration that passed the local checks.

Rules of this file:
- The checks do not create or change topics, tables or databases of catalogs. In an object store
  they write a probe object and delete it.
- Messages contain neither values of placeholders nor values that may be secrets.
- The number of concurrent validations is limited, because checks hold threads and connections.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Mapping

from connect.clock import Clock
from connect.config.connector import ConnectorConfig
from connect.config.masking import Masker
from connect.validation.parse import parse
from connect.validation.preflight.broker_checks import broker_checks
from connect.validation.preflight.catalog_checks import CatalogQuestions
from connect.validation.preflight.live_checks import Check, run_checks
from connect.validation.preflight.registry_checks import registry_checks
from connect.validation.preflight.store_checks import StoreQuestions, state_check

AT_A_TIME = 16
EACH_PART = 0.6


class Preflight:
    """Checks against brokers, catalog and schema registries.

    Args:
        node: node properties with placeholders.
        resolve: resolves placeholders.
        whole_s: timeout of all checks in seconds; each check gets ``EACH_PART`` of it.
        excluded: topics that ``topics.regex`` never matches.
        clock: monotonic clock.
    """

    def __init__(
        self,
        node: Mapping[str, str],
        resolve: Callable[[str], str],
        *,
        whole_s: float,
        excluded: frozenset[str],
        clock: Clock,
    ) -> None:
        self._node = node
        self._resolve = resolve
        self._whole_s = whole_s
        self._excluded = excluded
        self._clock = clock
        self._turns = threading.BoundedSemaphore(AT_A_TIME)

    def check(self, raw: Mapping[str, str]) -> dict[str, list[str]]:
        """Return the errors that brokers, catalog and registries report for a configuration.

        Returns:
            Error messages by key. One message at ``name`` if too many validations are running.
        """
        if not self._turns.acquire(timeout=self._whole_s):
            busy = (
                f"Not checked against brokers and catalog: {AT_A_TIME} validations are running; "
                f"try "
                "again, or skip these checks with icefloe.remote=false"
            )
            return {"name": [busy]}
        try:
            return self._check(raw)
        finally:
            self._turns.release()

    def _store_checks(self, config: ConnectorConfig, each_s: float) -> list[Check]:
        of_state = (
            []
            if config.aggregation is None
            else [state_check(config, each_s=each_s, clock=self._clock)]
        )
        if not config.has_catalog:
            return of_state
        return [
            *of_state,
            CatalogQuestions(config, each_s=each_s, clock=self._clock).check(),
            StoreQuestions(config, each_s=each_s, clock=self._clock).check(),
        ]

    def _check(self, raw: Mapping[str, str]) -> dict[str, list[str]]:
        node = {key: self._resolve(value) for key, value in self._node.items()}
        resolved = {key: self._resolve(value) for key, value in raw.items()}
        config = parse(resolved, node=node)
        config = dataclasses.replace(config, raw=raw)
        each_s = self._whole_s * EACH_PART
        checks = [
            *broker_checks(config, node, each_s=each_s, excluded=self._excluded),
            *self._store_checks(config, each_s),
            *registry_checks(config, each_s=each_s),
        ]
        mask = Masker(raw, self._resolve, is_inline_masked=True)
        errors = run_checks(checks, whole_s=self._whole_s, clock=self._clock)
        return {key: [mask(text) for text in sentences] for key, sentences in errors.items()}
