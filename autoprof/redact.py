"""Takes credentials out of what is said, written down or recorded. Standard library only.

It errs on the side of hiding: a harmless value behind ``--pad_token`` is hidden too.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from urllib.parse import unquote

HIDDEN = "***"

_WORDS = re.compile(r"[^A-Za-z0-9]+|(?<=[a-z0-9])(?=[A-Z])")
_SECRETS = {
    "apikey",
    "auth",
    "authorization",
    "credential",
    "credentials",
    "passphrase",
    "passwd",
    "password",
}
_SECRETS |= {"sas", "secret", "sig", "signature", "token"}
_SECRET_KEYS = {"access", "account", "api", "private", "secret", "signing"}  # as in AWS_ACCESS_KEY_ID
_SHORTEST_VALUE = 8
"""Values of the environment that are shorter could be part of any word."""

_URL = re.compile(r"\b([A-Za-z][A-Za-z0-9+.-]*://)([^\s\"'<>]*)")
_CONTAINER_BEFORE_AT = ("abfs://", "abfss://", "az://", "adl://", "wasb://", "wasbs://")
_PAIR = re.compile(
    r"""([A-Za-z_][\w.-]*)(["'\])]*\s*[=:]\s*["'(]?)((?:(?:Bearer|Basic)\s+)?[^\s"'&,;}()]+)""", re.IGNORECASE
)
_SHAPES = re.compile(
    r"\b(hf_[A-Za-z0-9]{16,}|gh[pousr]_\w{20,}|github_pat_\w+|glpat-[\w-]{16,}|sk-[\w-]{16,}"
    r"|xox[abprs]-[\w-]{10,}|A[KS]IA[0-9A-Z]{16}|AIza[\w-]{30,}|eyJ[\w-]+\.[\w-]+\.[\w-]+)"
)


def url(text: str) -> str:
    """Return a text with ``***`` for the user, the password and the query of each URL in it."""
    return _URL.sub(lambda found: found[1] + _without_secrets(found[1].lower(), found[2]), text)


def _without_secrets(scheme: str, rest: str) -> str:
    # A password may hold a slash that nobody has escaped: with a colon before it, the last @ counts.
    first_segment = re.split(r"[/?#]", rest, maxsplit=1)[0]
    before_at = rest.rpartition("@")[0] if ":" in first_segment else first_segment.rpartition("@")[0]
    if before_at and (":" in first_segment or scheme not in _CONTAINER_BEFORE_AT):
        rest = HIDDEN + rest[len(before_at) :]
    query = re.search(r"[?#]", rest)
    return rest[: query.end()] + HIDDEN if query and query.end() < len(rest) else rest


def text(line: str, environ: Mapping[str, str], *urls: str) -> str:
    """Return a line with ``***`` for what is known or looks to be a secret.

    Known are the credentials in ``urls`` and the values of variables in ``environ`` whose names say so.
    """
    named = {value for name, value in environ.items() if names_a_secret(name)}
    known = {value for value in named if len(value) >= _SHORTEST_VALUE} | _secrets_of(urls)
    for value in sorted(known, key=len, reverse=True):
        line = line.replace(value, HIDDEN)
    return _SHAPES.sub(HIDDEN, _PAIR.sub(_hide_value, url(line)))


def _hide_value(pair: re.Match[str]) -> str:
    return pair[1] + pair[2] + HIDDEN if names_a_secret(pair[1]) else pair[0]


def _secrets_of(urls: Sequence[str]) -> set[str]:
    found: set[str] = set()
    for scheme, rest in (match.groups() for each in urls for match in _URL.finditer(each)):
        if _without_secrets(scheme.lower(), rest) == rest:
            continue
        head, _, query = rest.partition("?")
        user, at, _ = head.rpartition("@")
        parts = [*(user.split(":", 1) if at else []), *(pair.partition("=")[2] for pair in query.split("&"))]
        found.update(part for part in (*parts, *map(unquote, parts)) if len(part) > 2)
    return found


def command(argv: Sequence[str], environ: Mapping[str, str], *urls: str) -> list[str]:
    """Return a command line with ``***`` for what follows ``--token`` and its like, and as :func:`text`."""
    shown, hide = [], False
    for word in argv:
        if hide and not word.startswith("--"):
            shown.append(HIDDEN)
            hide = False
            continue
        shown.append(text(word, environ, *urls))
        hide = bool(re.fullmatch(r"--?[A-Za-z][\w.-]*", word)) and names_a_secret(word)
    return shown


def names_a_secret(name: str) -> bool:
    """Say whether a variable, option or field of this name may hold a secret."""
    words = [word.lower() for word in _WORDS.split(name) if word]
    if not words:
        return False
    return (
        not _SECRETS.isdisjoint(words)
        or words[-1] == "key"
        or ("pwd" in words and len(words) > 1)  # PWD by itself is the working directory
        or any(kind in _SECRET_KEYS and key == "key" for kind, key in itertools.pairwise(words))
    )
