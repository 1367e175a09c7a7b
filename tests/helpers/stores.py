"""A store in memory that loses its client: a call that ends before its n-th change there, as a process whose power is cut."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from unittest import mock

from steadyscore.machine.places import StorePath

CHANGES = ("write_bytes", "create", "replace", "unlink")


class PowerLoss(BaseException):
    """The process is gone: nothing that it would still do reaches the store."""


def is_cut_before(number: int, call: Callable[[], Any]) -> bool:
    """Have a call end before one of its changes in a store, counted from 1; gives whether it came that far."""
    count = 0

    def counted(change: Callable[..., Any]) -> Callable[..., Any]:
        def do(*given: Any, **how: Any) -> Any:
            nonlocal count
            count += 1
            if count >= number:
                raise PowerLoss
            return change(*given, **how)

        return do

    with ExitStack() as patches:
        for name in CHANGES:
            patches.enter_context(mock.patch.object(StorePath, name, counted(getattr(StorePath, name))))
        try:
            call()
            return False
        except PowerLoss:
            return True


def flip_bit(files: Any, path: str) -> None:
    """Change one bit in the middle of an object."""
    content = bytearray(files.cat_file(path))
    content[len(content) // 2] ^= 4
    files.pipe_file(path, bytes(content))
