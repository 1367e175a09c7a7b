"""What can go wrong, as one tree.

SteadyscoreError            exit 1: something the user can fix; the message is one sentence that ends with the next action
├── InputError              a file, a value or a score that cannot be used; may carry several mistakes, reported at once
│   ├── MissingRun          a run that a table of the paper needs and that is not there (in `paper/library.py`)
│   └── UnusableScorer      a scorer that does not start or whose scores cannot be used; a server's own fault, not its client's
│       └── EndpointRefused  an address, a model's name or a key that an endpoint does not accept (in `engines/http.py`)
├── ModelError              a model, tokenizer or adapter that cannot serve the readout
├── WindowTooLong           a window that does not fit the model's context
├── RunMismatch             a run folder made by another fingerprint
├── StorageError            the disk refused (permission, space)
│   └── DamagedFile         a file that is missing, or is not what was written
├── MissingExtra            an optional dependency that is not installed, with the line that installs it
├── EndpointDown            an endpoint that failed query after query (in `engines/http.py`)
├── ServerError             a server of ours that refused, failed or cannot be reached (in `client.py`)
├── UsageError              exit 2: the command line itself is wrong
└── GateFailed              exit 3: a measured figure is on the wrong side of a bound
"""

from __future__ import annotations

from collections.abc import Sequence


class SteadyscoreError(Exception):
    """Shown to the user as it is, without a stack trace."""

    exit_code = 1


class InputError(SteadyscoreError):
    """One or more mistakes in what the user gave; all of them are in the message."""

    def __init__(self, mistakes: str | Sequence[str]):
        self.mistakes = [mistakes] if isinstance(mistakes, str) else list(mistakes)
        super().__init__("\n".join(self.mistakes))


class UnusableScorer(InputError):
    """A scorer that does not start, or whose scores cannot be used: whoever runs it can fix it, whoever asks it cannot."""


class ModelError(SteadyscoreError):
    """A model, tokenizer or adapter that cannot serve the readout."""


class WindowTooLong(SteadyscoreError):
    """A window that needs more tokens than the model takes."""

    def __init__(self, width: int, window: int, query_id: str, needs: int, takes: int, *, is_set: bool = False):
        self.width, self.window, self.query_id, self.needs, self.takes = width, window, query_id, needs, takes
        # A set takes the context of its longest candidate, however many there are: fewer would not help.
        what = "the longest candidate" if is_set else f"width {width} does not fit: window {window}"
        self.remedy = "Lower --chars" if is_set or width == 1 else "Lower --width or --chars"
        self.fact = f"{what} of query {query_id} needs {needs:,} tokens, the model takes {takes:,}"
        super().__init__(f"{self.fact}. {self.remedy}, or pass --fit shrink.")


class RunMismatch(SteadyscoreError):
    """A run folder whose fingerprint differs from the command's."""


class StorageError(SteadyscoreError):
    """The disk refused, or a file on it is damaged."""


class DamagedFile(StorageError):
    """A file that is missing, or is not what was written."""

    def __init__(self, file: object, what: str, remedy: str = ""):
        self.what = what
        super().__init__(f"{file} {what}. {remedy}".rstrip())


class MissingExtra(SteadyscoreError):
    """An optional dependency that is not installed; `extras.check_installed` raises it."""


class UsageError(SteadyscoreError):
    """The command line itself is wrong."""

    exit_code = 2


class GateFailed(SteadyscoreError):
    """A measured figure is on the wrong side of a bound the user set."""

    exit_code = 3
