"""How much of a document is read where the request says so: Cohere's `max_tokens_per_doc`, TEI's `truncate`.

Both cut what the server would read anyway, the first `Settings.chars` characters of title and text on one line. Answers
carry the whole documents.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..engines import Engine
from ..errors import InputError, WindowTooLong
from ..terms import Array, Instance
from ..window.encoding import Encoder
from ..window.presentation import windows
from ..window.prompt import shown
from .service import Model


def with_texts(instance: Instance, texts: Sequence[str]) -> Instance:
    """The same pool with other texts, which hold the titles."""
    pool = zip(instance.pool, texts, strict=True)
    return replace(instance, pool=tuple(replace(candidate, text=text, title=None) for candidate, text in pool))


def cut_to_tokens(instance: Instance, model: Model, count: int | None, default: int | None = None) -> Instance:
    """Every document cut to its first `count` tokens, of what the model's tokenizer makes of it.

    A scorer without a tokenizer of its own cannot count tokens: a count that was asked for is then refused.
    """
    if not isinstance(model.backend, Engine):
        if count is not None:
            raise InputError(f"{model.name} has no tokenizer that counts max_tokens_per_doc. Leave it out.")
        return instance
    most = count or default
    if most is None:
        return instance
    encoder = model.backend.encoder
    return with_texts(instance, [first_tokens(shown(c, model.settings.chars), most, encoder) for c in instance.pool])


def first_tokens(text: str, count: int, encoder: Encoder) -> str:
    """The longest beginning of a text that is at most `count` tokens."""
    if len(encoder.plain(text)) <= count:
        return text
    low, high = 0, len(text)  # low always fits, high never does
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if len(encoder.plain(text[:middle])) <= count else (low, middle)
    return text[:low]


def truncate_texts(
    instance: Instance, model: Model, orders: Array, truncate: bool | None, direction: str = "right", width: int | None = None
) -> Instance:
    """TEI's rule. True: cut what is too long, further where a window does not fit. False: refuse it. None: as the server does.

    A document is too long with more than `Settings.chars` characters, a window with more tokens than the model takes.
    `direction` is the side that is cut.
    """
    most = model.settings.chars
    if most is None and not isinstance(model.backend, Engine):
        return instance  # nothing is too long, and a system is shown whole texts
    texts = [shown(candidate, None) for candidate in instance.pool]
    longest = max(map(len, texts))
    if truncate is False and most is not None and longest > most:
        long = [i for i, text in enumerate(texts) if len(text) > most]
        raise InputError(
            f"text {long[0]} has {len(texts[long[0]]):,} characters, {model.name} reads {most:,}"
            + (f"; {len(long) - 1} more are too long. " if len(long) > 1 else ". ")
            + "Send truncate: true, or shorter texts."
        )
    shrinks = model.settings.fit == "shrink" if truncate is None else truncate
    chars = min(longest, most or longest)
    while True:
        kept = [text[max(0, len(text) - chars) :] if direction == "left" else text[:chars] for text in texts]
        shortened = with_texts(instance, kept)
        try:
            check_windows_fit(shortened, model, orders, width)
            return shortened
        except WindowTooLong as excess:
            if not shrinks or not chars:
                raise
            chars = int(chars * min(0.9, excess.takes / excess.needs))


def check_windows_fit(instance: Instance, model: Model, orders: Array, width: int | None) -> None:
    """Raise where a window of these orders needs more tokens than the model takes."""
    if not isinstance(model.backend, Engine):
        return
    scorer = replace(model, settings=replace(model.settings, fit="refuse")).scorer(width=width)
    for order in orders:
        for window in windows(order, scorer.width or len(order), scorer.settings.partition):
            scorer.prompt(instance, window)
