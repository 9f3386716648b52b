"""Every golden suite of the repository: ``python -m tests.golden.run``.

Exit status 1 when a recording is neither met nor different by a written rule.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

SUITES = {
    "records": "tests.golden.records_suite",
    "control-events": "tests.golden.control_events_suite",
    "connect-rest": "tests.golden.connect_rest_suite",
}


def main() -> int:
    """Run all suites, print a line for each, return the exit status."""
    status = 0
    for name, module in SUITES.items():
        try:
            results: Any = importlib.import_module(module).run()
        except ModuleNotFoundError as error:
            if error.name != module:
                raise
            print(f"golden {name}: no suite")
            status = 1
            continue
        # one suite gives one triple, several give a dict of them
        parts = results if isinstance(results, dict) else {name: results}
        for part, (agreed, by_rule, failing) in parts.items():
            count = failing if isinstance(failing, int) else len(failing)
            print(f"golden {part}: agreed {agreed}, by rule {by_rule}, failing {count}")
            if count:
                status = 1
            if not isinstance(failing, int):
                for result in failing:
                    print(f"  {result}")
    return status


if __name__ == "__main__":
    sys.exit(main())
