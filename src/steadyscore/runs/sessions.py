"""What a run cost and what scored it, as the notes of its parts say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, cast

from .layout import PartNote, Request, Session, SessionNote, ShrunkWindow
from .parts import merged_note, session_order

OWN = ("id", "number", "time", "puts", "scored_by")
"""Keys of a session's note that are no cost."""


def sessions_of(notes: Iterable[PartNote], requests: Sequence[Request]) -> tuple[list[dict[str, Any]], list[Session]]:
    """(starts, sessions) of a run: what scored it, each once with its times; and what every session cost."""
    merged = merged_note(notes)
    cuts: dict[str, list[ShrunkWindow]] = {}
    for name, windows in sorted(merged.get("shrunk", {}).items()):
        cuts.setdefault(name.rpartition("-")[0], []).extend(windows)
    noted: list[SessionNote] = [
        *merged.get("sessions", []),
        *(_accepted(one, n) for n, one in enumerate(requests) if "start" in one),
    ]
    starts: list[dict[str, Any]] = []
    sessions: list[Session] = []
    for session in sorted(noted, key=session_order):
        place = next((i for i, start in enumerate(starts) if _is_same(start, session["scored_by"])), len(starts))
        if place == len(starts):
            starts.append({**session["scored_by"], "times": []})
        starts[place]["times"].append(session["time"])
        cost = {key: value for key, value in session.items() if key not in OWN}
        sessions.append(cast("Session", cost | {"start": place, "shrunk": cuts.get(session["id"], [])}))
    return starts, sessions


def _accepted(request: Request, number: int) -> SessionNote:
    """A start at which a change was let pass and nothing was left to score."""
    start = request["start"]
    return cast(
        "SessionNote",
        {"id": f"request-{number}", "number": start["after"], "time": start["time"], "scored_by": start["scored_by"]},
    )


def _is_same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return {key: value for key, value in one.items() if key != "times"} == {**other}


def sum_sessions(sessions: Iterable[Session]) -> Session:
    """What all sessions cost. A query that was scored again, as its part was lost, has the cuts of the last time; those of
    permutations that were added to it join those of the ones before."""
    shrunk: dict[str, list[ShrunkWindow]] = {}
    charged: Counter[str] = Counter()
    seconds, windows, tokens, shuffled, moved = 0.0, 0, 0, 0, 0.0
    for session in sessions:
        for query_id, cuts in groupby(session.get("shrunk", []), key=itemgetter("query_id")):
            last = list(cuts)
            stays = [cut for cut in shrunk.get(query_id, []) if cut.get("known", 0) < last[0].get("known", 0)]
            shrunk[query_id] = [*stays, *last]
        charged.update(session.get("spent", {}))
        seconds += session.get("seconds", 0)
        windows += session.get("windows", 0)
        tokens += session.get("tokens", 0)
        shuffled += session.get("shuffled_pools", 0)
        moved = max(moved, session.get("shuffled_difference", 0.0))
    return {
        "shrunk": [cut for cuts in shrunk.values() for cut in cuts],
        "seconds": round(seconds, 1),
        "windows": windows,
        "tokens": tokens,
        **({"spent": dict(charged)} if charged else {}),
        **({"shuffled_pools": shuffled, "shuffled_difference": moved} if shuffled else {}),
    }
