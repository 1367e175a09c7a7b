"""What a run cost and what scored it, as the notes of its parts say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby

from ..terms import Failure, JsonObject
from .parts import merged_note, session_order
from .records import Coverage, PartNote, Request, Session, SessionNote, ShrunkWindow, Start


def sessions_of(notes: Iterable[PartNote], requests: Sequence[Request]) -> tuple[list[Start], list[Session]]:
    """(starts, sessions) of a run: what scored it, each once with its times; and what every session cost."""
    from ..machine.schemas import read_as

    merged = merged_note(notes)
    cuts: dict[str, list[JsonObject]] = {}
    for name, windows in sorted(merged.get("shrunk", {}).items()):
        cuts.setdefault(name.rpartition("-")[0], []).extend(windows)
    noted: list[SessionNote] = [
        *merged.get("sessions", []),
        *(_accepted(one, n) for n, one in enumerate(requests) if "start" in one),
    ]
    starts: list[Start] = []
    sessions: list[Session] = []
    for session in sorted(noted, key=session_order):
        by = read_as(Start, session["scored_by"])
        place = next((i for i, start in enumerate(starts) if replace(start, times=()) == by), len(starts))
        if place == len(starts):
            starts.append(by)
        starts[place] = replace(by, times=(*starts[place].times, session["time"]))
        sessions.append(read_as(Session, {**session, "start": place, "shrunk": cuts.get(session["id"], [])}))
    return starts, sessions


def _accepted(request: Request, number: int) -> SessionNote:
    """A start at which a change was let pass and nothing was left to score."""
    start = request["start"]
    return SessionNote(id=f"request-{number}", number=start["after"], time=start["time"], scored_by=start["scored_by"])


def sum_sessions(
    sessions: Sequence[Session], queries: int = 0, failed: Sequence[Failure] = (), cut: int | None = None
) -> Coverage:
    """What all sessions scored and cost. A query that was scored again, as its part was lost, has the cuts of the last time;
    those of permutations that were added to it join those of the ones before."""
    scored = Coverage(queries, queries - len(failed), list(failed), cut)
    if all(session.seconds is None for session in sessions):  # scores that were given cost nothing
        return scored
    shrunk: dict[str, list[ShrunkWindow]] = {}
    charged: Counter[str] = Counter()
    for session in sessions:
        for query_id, cuts in groupby(session.shrunk, key=lambda cut: cut.query_id):
            last = list(cuts)
            shrunk[query_id] = [*(cut for cut in shrunk.get(query_id, []) if cut.known < last[0].known), *last]
        charged.update(session.spent or {})
    shuffled = sum(session.shuffled_pools or 0 for session in sessions)
    return replace(
        scored,
        shrunk=[cut for cuts in shrunk.values() for cut in cuts],
        seconds=round(sum((session.seconds or 0.0 for session in sessions), 0.0), 1),
        windows=sum(session.windows or 0 for session in sessions),
        tokens=sum(session.tokens or 0 for session in sessions),
        spent=dict(charged) or None,
        shuffled_pools=shuffled or None,
        shuffled_difference=max(session.shuffled_difference or 0.0 for session in sessions) if shuffled else None,
    )
