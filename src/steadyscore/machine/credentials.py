"""No secret in a record: what of an address or a message is secret, and the text without it.

An address is written to run folders, reports, caches and logs, so one that carries a user name, a password or a key is refused
before anything is written or sent. A message may quote what a server or a program said: `redact` takes the secrets out.
"""

from __future__ import annotations

import json
import os
import re
from base64 import b64encode
from html import escape
from urllib.parse import parse_qsl, quote, urlencode

from ..errors import InputError

KEY = "STEADYSCORE_API_KEY"
"""The environment variable that holds the key of an endpoint."""
HIDDEN = "***"
SHORTEST = 8
"""Characters of a secret. Shorter values (EMPTY, none, key) are placeholders, and hiding them would garble messages."""
ESCAPES = ("%{:02x}", "\\u{:04x}", "\\x{:02x}", "\\{:03o}", "&#{};", "&#x{:x};", "&#{:04};", "&#x{:04x};")
"""How a URL, JSON, a program and HTML write a character by its number."""
BETWEEN = re.compile(r"[\s\u200b:]|\\+[nrt]")
"""What may stand between pieces of a secret: blanks and line ends, as they are or as JSON writes them; colons of digits."""
HARMLESS = frozenset({"api-version", "version", "model", "deployment", "region", "truncate"})
"""What an endpoint's query string may hold. A list of what is harmless: one of what is secret would miss the next name."""

SECRET_NAME = re.compile(r"key|token|secret|passw|credential|signature|^sig$|^auth|^code$", re.IGNORECASE)
SECRET_VARIABLE = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)$", re.IGNORECASE)
SCHEME = re.compile(r"https?://", re.IGNORECASE)
NEXT = re.compile(r",(?=https?://)", re.IGNORECASE)
"""What stands between the addresses of several servers."""
URL = re.compile(rf"https?://(?:(?!{NEXT.pattern})[^\s'\"<>])+", re.IGNORECASE)
HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^\s@:%\\\[\]]+)(:\d{1,5})?", re.IGNORECASE)


def check_credentials(address: str) -> None:
    """Refuse a scorer address that would carry a secret into a record; the sentence does not repeat the secret."""
    if any(_is_refused(url, strict) for url, strict in _urls(address)):
        raise InputError(
            f"{without_credentials(address)} was given with a user name, a password, a key or an unknown query string, which "
            f"would stand in every record of the run. Leave it out and put the key into ${KEY}; "
            f"a query string may hold {', '.join(sorted(HARMLESS))}."
        )
    if held := [name for name, value in _variables().items() if value in address]:
        raise InputError(
            f"{redact(address)} holds the value of ${held[0]}, which would stand in every record of the run. Leave it out: "
            f"an endpoint's key is read from ${KEY}, a program reads its own from the environment."
        )


def without_credentials(address: str) -> str:
    """An address without user name, password, fragment, and without what its query string may not hold."""
    if len(several := NEXT.split(address)) > 1:
        return ",".join(map(without_credentials, several))
    scheme = SCHEME.search(address)
    if scheme is None:
        return address
    url = address[scheme.end() :]
    host, path, query = _parts(url)
    if not HOST.fullmatch(host):  # what stands before the last @, slashes and all, may be a password
        host, path, query = _parts(url.rpartition("@")[2]) if "@" in url else (HIDDEN, "", "")
    kept = urlencode([(name, value) for name, value in parse_qsl(query) if name in HARMLESS])
    return address[: scheme.end()] + host + path + ("?" + kept if kept else "")


def redact(text: str, *secrets: str) -> str:
    """A message without the secrets in use: the values of environment variables called as keys are, those given, and what a URL
    in it may carry."""
    return URL.sub(lambda url: without_credentials(url[0]), hide(text, *secrets, *_variables().values()))


def hide(text: str, *secrets: str) -> str:
    """A text without some values, however JSON, a URL, HTML, base64 or hexadecimal digits spell them, and in pieces too."""
    spellings = {spelling.lower() for secret in secrets if len(secret) >= SHORTEST for spelling in _spellings(secret)}
    whole = BETWEEN.sub("", text.lower())
    if not any(BETWEEN.sub("", spelling) in whole for spelling in spellings):  # a text may be long, and most hold none
        return text
    each = [f"(?:{BETWEEN.pattern})*".join(map(re.escape, one)) for one in sorted(spellings, key=len, reverse=True)]
    return re.sub("|".join(each), HIDDEN, text, flags=re.IGNORECASE)


def _spellings(secret: str) -> set[str]:
    """A secret as it is; with all characters escaped, or all but letters and digits; and in base64, wherever it begins there."""
    key = secret.encode("utf-8", "surrogateescape")
    packed = [b64encode(bytes(k) + key).decode()[-(-4 * k // 3) : 4 * (k + len(key)) // 3] for k in range(3)]
    urlsafe = [each.replace("+", "-").replace("/", "_") for each in packed]
    slashed = re.sub(r'(["\\/])', r"\\\1", secret)
    signs = re.sub(r"[A-Za-z0-9]", "", secret)
    escaped = [secret.translate({ord(c): form.format(ord(c)) for c in which}) for form in ESCAPES for which in (secret, signs)]
    written = [json.dumps(secret)[1:-1], quote(key), quote(key, safe=""), escape(secret)]
    return {secret, slashed, *written, *escaped, *packed, *urlsafe, key.hex()}


def _variables() -> dict[str, str]:
    """Environment variables that hold a secret, by their names."""
    secrets = {name: value.strip() for name, value in os.environ.items() if SECRET_VARIABLE.search(name)}
    return {name: value for name, value in secrets.items() if len(value) >= SHORTEST}


def _urls(address: str) -> list[tuple[str, bool]]:
    """The URLs of an address, and whether each is that of an endpoint; a program may be given any number of its own."""
    if address.startswith("command:"):
        return [(url, False) for url in URL.findall(address)]
    scheme = SCHEME.search(address)
    return [(url, True) for url in NEXT.split(address[scheme.start() :])] if scheme else []


def _is_refused(url: str, strict: bool) -> bool:
    host, _, query = _parts(SCHEME.sub("", url, count=1))
    names = [name for name, _ in parse_qsl(query, keep_blank_values=True)]
    if strict:
        return not HOST.fullmatch(host) or "#" in url or any(name not in HARMLESS for name in names)
    return "@" in host or any(SECRET_NAME.search(name) for name in names)


def _parts(url: str) -> tuple[str, str, str]:
    """Host with all that surrounds it, path, query string."""
    whole = url.partition("#")[0]
    place, _, query = whole.partition("?")
    host, slash, path = place.partition("/")
    return host, slash + path, query
