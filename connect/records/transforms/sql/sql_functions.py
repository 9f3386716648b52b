"""Functions that a query of ``Sql`` may call. Other functions are rejected.

Rules of this file:
- The result of a listed function depends on its arguments only. It does not depend on files,
  addresses, classes, the user, the clock or session properties.
- No listed function has options, and none creates a large value from a small one. Exceptions are
  the functions of ``BOUNDED``, with a literal size, and functions for which
  ``worker.sql.expression_sizes`` computes the size.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_GROUPS: Final[Mapping[str, str]] = {
    "Conditions": """
        between case coalesce equal_null greatest if ifnull ilike in isnan isnotnull isnull least
        like nanvl not nullif nullifzero nvl nvl2 regexp regexp_like rlike when zeroifnull
    """,
    "Types": """
        bigint binary boolean cast date decimal double float int smallint string timestamp tinyint
        try_cast typeof
    """,
    "Numbers": """
        abs acos acosh asin asinh atan atan2 atanh bin bit_count bit_get bround cbrt ceil ceiling
        conv cos cosh cot csc degrees div e exp expm1 factorial floor getbit hex hypot ln log log10
        log1p log2 mod negative pi pmod positive pow power radians rint round sec shiftleft
        shiftright shiftrightunsigned sign signum sin sinh sqrt tan tanh to_number try_add
        try_divide try_mod try_multiply try_subtract try_to_number unhex width_bucket
    """,
    "Texts": """
        ascii base64 bit_length btrim char char_length character_length chr concat concat_ws
        contains decode elt encode endswith find_in_set format_number format_string initcap instr
        is_valid_utf8 lcase left len length locate lower lpad ltrim luhn_check make_valid_utf8 mask
        octet_length overlay parse_url position printf quote regexp_count regexp_extract
        regexp_instr regexp_replace regexp_substr repeat replace reverse right rpad rtrim soundex
        space split split_part startswith substr substring substring_index to_binary to_char
        to_varchar translate trim try_parse_url try_to_binary try_url_decode try_validate_utf8
        ucase unbase64 upper url_decode url_encode
    """,
    "Dates and times": """
        add_months convert_timezone date_add date_diff date_format date_from_unix_date date_part
        date_sub date_trunc dateadd datediff datepart day dayname dayofmonth dayofweek dayofyear
        extract from_unixtime from_utc_timestamp hour last_day make_date make_timestamp
        make_timestamp_ltz make_timestamp_ntz minute month monthname months_between next_day quarter
        second timestamp_micros timestamp_millis timestamp_seconds timestampadd timestampdiff
        to_date to_timestamp to_timestamp_ltz to_timestamp_ntz to_unix_timestamp to_utc_timestamp
        trunc try_make_timestamp try_make_timestamp_ltz try_make_timestamp_ntz try_to_date
        try_to_timestamp unix_date unix_micros unix_millis unix_seconds unix_timestamp weekday
        weekofyear year
    """,
    "Lists, maps and structs": """
        array array_append array_compact array_contains array_distinct array_except array_intersect
        array_join array_max array_min array_position array_prepend array_remove array_repeat
        array_size array_sort array_union arrays_overlap arrays_zip cardinality element_at exists
        filter flatten forall get map map_concat map_contains_key map_entries map_filter
        map_from_arrays map_from_entries map_keys map_values map_zip_with named_struct size slice
        sort_array str_to_map struct transform transform_keys transform_values try_element_at
        zip_with
    """,
    "JSON and CSV": """
        from_csv from_json get_json_object json_array_length json_object_keys to_csv to_json
    """,
    "Digests": "crc32 hash md5 sha sha1 sha2 xxhash64",
}


def names_of(text: str) -> frozenset[str]:
    """Split a text into names."""
    return frozenset(text.split())


FUNCTIONS: Final = names_of(" ".join(_GROUPS.values()))

BOUNDED: Final[Mapping[str, tuple[int, int]]] = {
    **dict.fromkeys(("lpad", "rpad", "repeat", "array_repeat"), (1, 10_000)),
    "space": (0, 10_000),
    **dict.fromkeys(("round", "bround", "ceil", "ceiling", "floor", "format_number"), (1, 100)),
}
"""Functions with a size argument: its position and its maximum value."""

ARGUMENTS_MAX: Final[Mapping[str, int]] = {"from_json": 2, "from_csv": 2, "to_json": 1, "to_csv": 1}
"""Functions with optional arguments that are options: the number of allowed arguments."""

LITERALS: Final[Mapping[str, tuple[int, ...]]] = {
    **dict.fromkeys(("extract", "date_part", "datepart"), (0,)),
    **dict.fromkeys(
        ("to_char", "to_varchar", "to_number", "try_to_number", "to_binary", "try_to_binary"), (1,)
    ),
    "named_struct": tuple(range(0, 2_000, 2)),
}
"""Functions with arguments that must be literals, because Spark evaluates them in analysis."""

SCHEMAS: Final = frozenset({"from_json", "from_csv"})
"""Functions with a schema as second argument, which must be a literal."""

FORMATS: Final = frozenset({"format_string", "printf"})
"""Functions with a format with widths as first argument, which must be a literal."""


def functions_text() -> str:
    """Return the list of functions for the documentation."""
    return "\n".join(
        f"- {group.lower()}: {', '.join(f'`{name}`' for name in sorted(names.split()))}"
        for group, names in _GROUPS.items()
    )
