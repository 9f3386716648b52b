"""What the process of a preview sends to its node."""

from __future__ import annotations

import json
import subprocess
import sys

from connect.operations.preview.connector_preview import ANSWER_BYTES_MAX, answer_text


def test_a_large_answer_is_an_error_in_the_process_that_made_it() -> None:
    """One record may become 100,000 rows; the node would read them all before it refused them."""
    small = {"records": ["x" * 1_000]}
    assert json.loads(answer_text(small)) == small
    text = answer_text({"records": ["x" * 1_000] * (ANSWER_BYTES_MAX // 1_000)})
    assert len(text) < 1_000
    assert json.loads(text)["error"]["code"] == "preview_too_large"


PRINTING = """
import os
from connect.operations.preview import connector_preview

def preview_connector(*_, **__):
    print("loaded a license")
    os.write(1, b"by a library in C")
    return {"records": []}

connector_preview.preview_connector = preview_connector
connector_preview.serve_preview()
"""


def test_what_users_code_prints_is_no_part_of_the_answer() -> None:
    """A converter, or a library that it loads, may write to standard output."""
    request = {
        "raw": {},
        "node": {},
        "reserved": [],
        "count": 1,
        "start": "earliest",
    }
    done = subprocess.run(
        [sys.executable, "-c", PRINTING],
        input=json.dumps(request).encode(),
        capture_output=True,
        check=True,
        timeout=120,
    )
    assert json.loads(done.stdout) == {"records": []}
