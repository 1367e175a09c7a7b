"""A run described as evaluation campaigns ask: ir_metadata (ir-metadata.org, schema 0.1), as YAML."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import InputError

if TYPE_CHECKING:
    from ..results.audit import Audit

IR_METADATA = "ir_metadata"
TO_FILL = "ENTER_VALUE_HERE"
"""What a campaign wants to know and no run does."""
TIE_RULES = {"id": "smaller document id first", "input": "earlier input position first"}


def ir_metadata(audits: Sequence[Audit]) -> str:
    """The metadata of one run; what only its owner knows is left to fill in."""
    if len(audits) != 1:
        raise InputError(f"ir_metadata describes one run, and {len(audits)} were named. Name one of them.")
    (audit,) = audits
    record = audit.record
    made, versions = record.fingerprint.keys, record.versions or {}
    libraries = [f"{name}=={version}" for name, version in versions.items() if name != "machine"]
    data = {"name": known.name, "sha256": known.sha256} if (known := record.fingerprint.data) else {}
    settings = {key: value for key, value in made.items() if key not in ("data", "queries")}
    first = [{"name": "first stage", "method": record.first_stage}] if record.first_stage else []
    reranker = {"name": audit.name, "params": settings} | ({"reranks": "first stage"} if first else {})
    described = {
        "schema-version": 0.1,
        "run-version": 1.0,
        "tag": audit.name,
        "platform": {"hardware": {"cpu": versions.get("machine")}, "software": {"libraries": {"python": libraries}}},
        "research goal": {"description": TO_FILL, "evaluation": {"reported measures": list(audit.figures)}},
        "implementation": {
            "executable": {"cmd": shlex.join(record.command)},
            "source": {"lang": ["python"], "repository": TO_FILL},
        },
        "method": {"automatic": True, "score ties": TIE_RULES[audit.view.ties], "retrieval": [*first, reranker]},
        "actor": {"team": TO_FILL, "role": "experimenter"},
        "data": {
            "test collection": {"name": audit.collection, "source": record.source, **data},
            "training data": [{"name": TO_FILL}],
        },
    }
    return "".join(f"{line}\n" for line in _lines(described))


def _lines(value: Any) -> Iterator[str]:
    """A mapping or a list as YAML; every scalar is written as JSON, which YAML reads alike."""
    for key, one in value.items() if isinstance(value, Mapping) else ((None, one) for one in value):
        head = "-" if key is None else f"{json.dumps(key)}:"
        if isinstance(one, Mapping | list) and one:
            yield head
            yield from (f"  {line}" for line in _lines(one))
        else:
            yield f"{head} {json.dumps(one, ensure_ascii=False)}"
