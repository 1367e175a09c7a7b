"""Chats, lists of messages, as text: what those of a row begin with is the prompt, the rest of each is an answer."""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import takewhile
from typing import Any

from ..terms import JsonObject

Chat = list[tuple[str, str]]
KEYS = (("role", "content"), ("from", "value"))
"""What the role and the text of a message are called."""


def _read_chat(cell: Any) -> Chat | None:
    messages = cell if isinstance(cell, list) and all(isinstance(one, dict) for one in cell) else []
    for role, text in KEYS:
        if messages and all(isinstance(one.get(role), str) and isinstance(one.get(text), str) for one in messages):
            return [(one[role], one[text]) for one in messages]
    return None


def _as_text(chat: Chat) -> str:
    return chat[0][1] if len(chat) == 1 else "\n\n".join(f"{role}: {text}" for role, text in chat)


def _with_chats(cell: Any, make: Callable[[Chat], Any]) -> Any:
    """A cell with what is made of its chats; any other as it is."""
    if chat := _read_chat(cell):
        return make(chat)
    return [_with_chats(one, make) for one in cell] if isinstance(cell, list) else cell


def chats_as_text(cells: JsonObject, queries: Collection[str]) -> dict[str, object]:
    """The cells of a row without chats, and with a prompt of what they all begin with where no column is a query."""
    answers: list[Chat] = []
    for name, cell in cells.items():
        _with_chats([] if name in queries else cell, answers.append)
    shared = len(list(takewhile(lambda place: len(set(place)) == 1, zip(*(chat[:-1] for chat in answers), strict=False))))
    prompt = {"prompt": _as_text(answers[0][:shared])} if shared and not queries else {}
    return prompt | {
        name: _with_chats(cell, _as_text if name in queries else lambda chat: _as_text(chat[shared:]))
        for name, cell in cells.items()
    }
