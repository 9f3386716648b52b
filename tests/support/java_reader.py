"""Iceberg's own reader in Java, in the JVM of a Spark session: rows with types Spark lacks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any


class JavaReader:
    """Reads tables of a REST catalog with ``IcebergGenerics``.

    Args:
        session: a Spark session with Iceberg.
        uri: of the catalog.
    """

    def __init__(self, session: Any, uri: str) -> None:
        self._jvm = session._jvm
        properties = self._jvm.java.util.HashMap()
        properties.put("type", "rest")
        properties.put("uri", uri)
        hadoop = session._jsc.hadoopConfiguration()
        self._catalog = self._jvm.org.apache.iceberg.CatalogUtil.buildIcebergCatalog(
            "java", properties, hadoop
        )

    def rows(
        self,
        identifier: Sequence[str],
        where: tuple[str, Any] | None = None,
        *,
        with_lineage: bool = False,
    ) -> list[dict[str, Any]]:
        """Rows of a table, with instants and variants as Java writes them as text.

        Args:
            identifier: of the table.
            where: a column and the value that it must equal.
            with_lineage: also return ``_row_id`` and ``_last_updated_sequence_number``.
        """
        iceberg = self._jvm.org.apache.iceberg
        table = self._table(identifier)
        scan = iceberg.data.IcebergGenerics.read(table)
        if where is not None:
            scan = scan.where(iceberg.expressions.Expressions.equal(*where))
        fields = self._jvm.java.util.ArrayList(table.schema().columns())
        if with_lineage:
            fields.add(iceberg.MetadataColumns.ROW_ID)
            fields.add(iceberg.MetadataColumns.LAST_UPDATED_SEQUENCE_NUMBER)
            scan = scan.project(iceberg.Schema(fields))
        names = [field.name() for field in fields]
        rows = scan.build()
        found = []
        records = rows.iterator()
        while records.hasNext():
            record = records.next()
            values = {name: record.getField(name) for name in names}
            found.append({n: v if _is_plain(v) else v.toString() for n, v in values.items()})
        rows.close()
        return found

    def add_columns(self, identifier: Sequence[str], defaults: Mapping[str, Any]) -> None:
        """Add columns ``s n d day ts u`` with defaults, and with types of these names."""
        types = self._jvm.org.apache.iceberg.types.Types
        kinds = {
            "s": types.StringType.get(),
            "n": types.IntegerType.get(),
            "d": types.DecimalType.of(9, 2),
            "day": types.DateType.get(),
            "ts": types.TimestampType.withZone(),
            "u": types.UUIDType.get(),
        }
        update = self._table(identifier).updateSchema()
        for name, value in defaults.items():
            literal = self._literal(value).to(kinds[name])
            update = update.addColumn(name, kinds[name], literal)
        update.commit()

    def set_write_default(self, identifier: Sequence[str], column: str, value: Any) -> None:
        """Change what writers write for records without the column."""
        update = self._table(identifier).updateSchema()
        update.updateColumnDefault(column, self._literal(value)).commit()

    def _literal(self, value: Any) -> Any:
        return self._jvm.org.apache.iceberg.expressions.Expressions.lit(value)

    def _table(self, identifier: Sequence[str]) -> Any:
        parse = self._jvm.org.apache.iceberg.catalog.TableIdentifier.parse
        return self._catalog.loadTable(parse(".".join(identifier)))

    def close(self) -> None:
        """Close the catalog."""
        self._catalog.close()


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float | bool | bytes | Decimal)
