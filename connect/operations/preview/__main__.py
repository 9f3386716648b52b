"""``python -m connect.operations.preview``: one preview, see ``connector_preview``."""

from __future__ import annotations

from connect.processes.start_modules import start_module

if __name__ == "__main__":
    start_module("connect.operations.preview.connector_preview").serve_preview()
