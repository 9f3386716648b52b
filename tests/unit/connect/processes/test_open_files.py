import json
import subprocess
import sys
from typing import Any

import pytest

from connect.node.node_start import OPEN_FILES

PROGRAM = """
import json, resource, subprocess, sys
resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))
from connect.node.node_start import raise_open_files_limit
returned = raise_open_files_limit()
child = "import resource; print(list(resource.getrlimit(resource.RLIMIT_NOFILE)))"
inherited = subprocess.run([sys.executable, "-c", child], capture_output=True, check=True).stdout
print(json.dumps([returned, json.loads(inherited)]))
"""


def limits(soft: int, hard: int) -> Any:
    """What a process that starts with these limits gets, and passes on to its children."""
    program = PROGRAM.format(soft=soft, hard=hard)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(("soft", "hard"), [(256, 1024), (1024, 4096), (512, 512)])
def test_the_soft_limit_is_raised_up_to_the_hard_limit(soft: int, hard: int) -> None:
    """For this process and its children."""
    assert hard < OPEN_FILES
    assert limits(soft, hard) == [hard, [hard, hard]]
