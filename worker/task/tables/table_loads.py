"""Loads the tables of a task, without their old snapshots.

Rules of this file:
- Many tables are loaded at the same time: a catalog may take a tenth of a second for each.
- The threads are kept, because a REST catalog has a client for each thread.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from pyiceberg.table import Table

from connect.gateways.catalog.catalog import CatalogGateway

LOADS_MAX: Final = 8
"""Tables that are loaded at the same time. So many, or fewer, are loaded one after the other."""


class TableLoads:
    """Loads tables of one catalog.

    Args:
        catalog: where the tables are.
    """

    def __init__(self, catalog: CatalogGateway) -> None:
        self._catalog = catalog
        self._threads = ThreadPoolExecutor(LOADS_MAX, "load-table")

    def one(self, name: str) -> Table:
        """Load the table ``namespace.table``; errors as ``CatalogGateway.load``."""
        return self._catalog.load(name.split("."), with_history=False)

    @contextlib.contextmanager
    def many(self, names: Sequence[str]) -> Iterator[Mapping[str, Callable[[], Table]]]:
        """Begin to load tables; each call returns one, or raises as ``one``."""
        with self.together({name: partial(self.one, name) for name in names}) as loads:
            yield loads

    @contextlib.contextmanager
    def together(
        self, work: Mapping[str, Callable[[], Table]]
    ) -> Iterator[Mapping[str, Callable[[], Table]]]:
        """Begin to load or make tables; each call returns the table of a name, or its error."""
        if len(work) <= LOADS_MAX:
            yield work
            return
        futures = {name: self._threads.submit(call) for name, call in work.items()}
        try:
            yield {name: future.result for name, future in futures.items()}
        finally:
            for future in futures.values():
                future.cancel()  # after an error the others are not needed

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown(cancel_futures=True)
