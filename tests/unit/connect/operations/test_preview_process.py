"""What the process of a preview sends to its node."""

from __future__ import annotations

import json

from connect.operations.preview.connector_preview import ANSWER_BYTES_MAX, answer_text


def test_a_large_answer_is_an_error_in_the_process_that_made_it() -> None:
    """One record may become 100,000 rows; the node would read them all before it refused them."""
    small = {"records": ["x" * 1_000]}
    assert json.loads(answer_text(small)) == small
    text = answer_text({"records": ["x" * 1_000] * (ANSWER_BYTES_MAX // 1_000)})
    assert len(text) < 1_000
    assert json.loads(text)["error"]["code"] == "preview_too_large"
