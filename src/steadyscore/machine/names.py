"""Names as files (on one level, visible, of characters that every file system takes), and names that tell several apart."""

from __future__ import annotations

import re
from collections.abc import Sequence

PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
DEVICE = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.IGNORECASE)
"""What Windows takes for a device, whatever the ending."""
PLAIN_RULE = "up to 100 letters, digits, dots, dashes and underscores, and a letter or digit first"


def is_plain_name(name: str) -> bool:
    """Whether a name can be that of a file as it is, and then leads nowhere else."""
    return bool(PLAIN.fullmatch(name)) and not DEVICE.fullmatch(name) and not name.endswith(".")


def slug(name: str) -> str:
    """Any name as that of a folder."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name)[-80:].strip("-.") or "run"
    return f"run-{plain}" if DEVICE.fullmatch(plain) else plain


def without_common(names: Sequence[Sequence[str]]) -> Sequence[Sequence[str]]:
    """Names in parts, each without those that all begin with and those that all end with."""
    for _ in ("beginnings", "ends"):
        while all(names) and len({name[0] for name in names}) == 1:
            names = [name[1:] for name in names]
        names = [name[::-1] for name in names]
    return names
