"""Removes credentials of cloud services from the environment of a process.

Rules of this file:
- Some libraries read credentials from the environment even if they were given others: Delta's
  library adds a session token of the environment to configured keys. So a process whose connectors
  may not use the node's credentials must not have them in its environment.
- Placeholders are resolved from a copy that was made before. Regions and addresses stay.
"""

from __future__ import annotations

import re
from collections.abc import MutableMapping
from typing import Final

from connect.gateways.access_policy import access_policy

_CREDENTIALS: Final = re.compile(
    "(AWS|AZURE|GOOGLE|MSI|IDENTITY)_(.*_)?"
    "(KEY|KEY_ID|SECRET|TOKEN|TOKEN_FILE|PASSWORD|PROFILE|ROLE_ARN|CLIENT_ID|CLIENT_SECRET"
    "|TENANT_ID|SERVICE_ACCOUNT|APPLICATION_CREDENTIALS|HEADER|SAS_KEY"
    "|CONTAINER_CREDENTIALS_(RELATIVE|FULL)_URI)"
)


def forget_credentials(environ: MutableMapping[str, str]) -> None:
    """Remove the credentials unless connectors may use those of the node's environment.

    Args:
        environ: ``os.environ``.
    """
    if access_policy().has_ambient:
        return
    for name in [name for name in environ if _CREDENTIALS.fullmatch(name)]:
        del environ[name]
