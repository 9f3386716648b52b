"""``icefloe user``: entries of a users file for passwords and tokens."""

from __future__ import annotations

import sys

import typer

from connect.cli.terminal import echo
from connect.errors import ConfigError
from connect.node.rest.auth import hashed_password, new_token

user_app = typer.Typer(name="user", help="Entries of a node's users file.", no_args_is_help=True)


@user_app.command()
def password() -> None:
    """Read a password (asked for on a terminal, else one line of input) and print its entry."""
    if sys.stdin.isatty():
        text = typer.prompt("Password", hide_input=True, confirmation_prompt=True)
    else:
        text = sys.stdin.readline().rstrip("\n")
    if not text:
        raise ConfigError("the password is empty", code="usage")
    echo(f"password: {hashed_password(text)}")


@user_app.command()
def token() -> None:
    """Make a token; print it once on standard error, and its entry on standard output."""
    new, entry = new_token()
    echo(f"token, shown only now: {new}", err=True)
    echo(f"token: {entry}")
