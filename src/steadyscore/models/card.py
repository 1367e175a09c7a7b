"""card.json of an adapter folder, which says what the adapter was trained for, and the README.md drawn from it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import NotRequired

from typing_extensions import TypedDict

from ..errors import DamagedFile, InputError
from ..machine.disk import atomic, explaining_os_errors, is_there, read_json, write_json
from ..machine.names import markdown_text
from ..runs.records import to_json
from ..tasks import TASKS
from ..terms import JsonObject, Markers, Partition, Placeholder, PromptStyle
from .embedded import EMBEDDED, shipped_adapters


class TrainedSettings(TypedDict, total=False):
    """The presentation that an adapter was trained with, as its card keeps it."""

    width: int | None
    chars: int | None
    partition: Partition
    markers: Markers
    placeholder: Placeholder
    prompt: PromptStyle | None
    instruction: str | None


@dataclass(frozen=True, slots=True)
class CardBase:
    """The model that an adapter was trained on."""

    model: str
    weights: str | None
    """Digest of its weights."""


class HeldOutPoint(TypedDict):
    """One evaluation on held-out queries while training."""

    step: int
    quality: float
    quality_se: NotRequired[float | None]
    tau_psi: float
    overlap: NotRequired[float | None]
    retention: NotRequired[float | None]
    dispersion: float
    queries: NotRequired[int]


@dataclass(frozen=True, slots=True)
class CardData:
    """The collection that an adapter was trained on."""

    name: str
    queries: int
    sha256: str | None = None
    windows: int | None = None


@dataclass(frozen=True, slots=True)
class CardCutoff:
    """The threshold that goes with an adapter."""

    value: float | None = None
    overlap: float | None = None
    """Of what it keeps under reordering."""
    retention: float | None = None
    how: str | None = None
    on: str | None = None
    """What it was fitted on."""
    sha256: str | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """What an adapter does on one collection."""

    collection: str
    helps: bool
    sentence: str
    """With the figure, its interval and what it is compared with."""

    def __str__(self) -> str:
        return f"{'helps' if self.helps else 'does not help'} on {self.collection}: {self.sentence}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """What an adapter was trained for, checked on reading."""

    keys: JsonObject = field(default_factory=dict, compare=False, repr=False)
    """The file as it was read, with what other versions add to it."""
    base: CardBase
    task: str
    objective: str
    weight: float
    weight_convention: str
    """`none` for objectives that do not penalise the variance over views."""
    ramp: int | None = None
    anchor: float | None = None
    preference_share: float | None = None
    grade_share: float | None = None
    shuffle: str | None = None
    views: int
    widths: list[int]
    settings: TrainedSettings
    """Fields of `Settings`: how a window was shown."""
    prompt_hash: str
    grade_tokens: list[int]
    data: CardData
    labels: JsonObject
    seed: int
    steps: int
    batch: int | None = None
    learning_rate: float
    lora: JsonObject
    initial: JsonObject | None = None
    slot_weights: list[float] | None = None
    held_out: list[HeldOutPoint]
    versions: dict[str, str]
    name: str | None = None
    about: str | None = None
    licence: str | None = None
    cutoff: CardCutoff | None = None
    measured: dict[str, float] | None = None
    dtype: str | None = None
    findings: list[Finding] | None = None
    """Where it helps and where it does not."""

    def __getitem__(self, name: str) -> object:
        """A field as card.json has it."""
        return self.to_json()[name]

    def to_json(self) -> dict[str, object]:
        """As card.json has it."""
        kept = {"initial", "slot_weights", *self.keys}
        own = {f.name: to_json(getattr(self, f.name)) for f in fields(self) if f.name != "keys"}
        return {name: value for name, value in own.items() if value is not None or name in kept} | {
            name: value for name, value in self.keys.items() if name not in own
        }


MERGED = "merged.json"
"""In the folder of a merged model: the card of the adapter that is in its weights, under `adapter`."""


def read_card(folder: Path) -> Card:
    """The card of an adapter, or of the adapter that is in the weights of a merged model."""
    is_merged = is_there(folder / MERGED)
    file = folder / (MERGED if is_merged else "card.json")
    restore = "Copy it back from a backup, or train the adapter again."
    try:
        card = read_json(file)
        card = card.get("adapter", {}) if is_merged else card
    except FileNotFoundError:
        if not folder.exists():
            raise InputError(f"adapter folder {folder} does not exist. Shipped: {', '.join(shipped_adapters())}.") from None
        raise InputError(
            f"{folder} has no card.json, so what it was trained for is unknown. Train it with steadyscore train."
        ) from None
    except DamagedFile as damage:
        raise DamagedFile(file, damage.what, restore) from damage
    from ..machine.schemas import kind_mistakes, read_as

    mistakes = kind_mistakes(Card, card)
    if isinstance(card, dict) and isinstance(task := card.get("task"), str) and task not in TASKS:
        mistakes.append(f"task: use one of {', '.join(TASKS)}")
    if mistakes:
        raise InputError(f"{file} cannot be used: {'; '.join(mistakes)}. {restore}")
    return replace(read_as(Card, card), keys=card)


def write_card(folder: Path, card: Card) -> None:
    with explaining_os_errors(folder):
        write_json(folder / "card.json", card.to_json())
        with atomic(folder / "README.md") as stream:
            stream.write(model_card(card).encode())


def base_of(identity: JsonObject) -> CardBase:
    """The base that an engine's identity names."""
    weights = identity["weights"]
    return CardBase(str(identity["model"]), None if weights is None else str(weights))


def describe_base(base: CardBase) -> str:
    """`Qwen3-4B @ 1cfa9a7`: a base as messages name it."""
    return f"{Path(base.model).name or base.model} @ {(base.weights or 'unknown')[:7]}"


def scorer_address(model: str) -> str:
    """A base as a scorer address."""
    return model if model in EMBEDDED or model.startswith("hf:") else f"hf:{model}"


def adapter_address(card: Card, folder: Path) -> str:
    """An adapter on its base, as a scorer address."""
    return f"{scorer_address(card.base.model)}+{folder}"


# -- README.md


EMBEDDED_DATA = {"response_ranking": "responses", "multidoc_qa": "multidoc_qa", "claim_verification": "claims"}
"""The embedded collection of a task, where it is not `passages`."""


def model_card(card: Card) -> str:
    """README.md of an adapter folder: front matter and tables from the card, nothing else."""
    model, data = card.base.model, EMBEDDED_DATA.get(card.task, "passages")
    sections = [
        _front_matter(card),
        [f"# {card.objective} adapter for {markdown_text(Path(model).name or model)}"],
        ["Grades the candidates of a prompt from 0 to 3. Use it with:"],
        ["```", f"steadyscore audit --scorer {' '.join(_address(card).split())} --data {data} --out runs/audit", "```"],
        [_served(fitted)] if (fitted := card.cutoff) else [],
        [about] if (about := card.about) else [],
        [
            "| setting | value |",
            "|---|---|",
            *(f"| {name} | {markdown_text(str(value))} |" for name, value in _settings(card).items()),
        ],
        *_section(
            "Held-out evaluation",
            [f"| {e['step']} | {e['quality']:.4f} | {e['tau_psi']:.4f} | {e['dispersion']:.4f} |" for e in card.held_out],
            ("| step | quality | tau-PSI | dispersion |", "|---:|---:|---:|---:|"),
        ),
        *_section(
            "Measured",
            [f"| {markdown_text(name)} | {value:.4f} |" for name, value in (card.measured or {}).items()],
            ("| measure | value |", "|---|---:|"),
        ),
        *_section("Where it helps", _findings(card, helps=True)),
        *_section("Where it does not", _findings(card, helps=False)),
    ]
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def _front_matter(card: Card) -> list[str]:
    licence = [f"license: {_yaml(named)}"] if (named := card.licence) else []
    tags = "tags: [steadyscore, reranking, order-consistency]"
    return ["---", f"base_model: {_yaml(card.base.model)}", "library_name: peft", tags, *licence, "---"]


YAML_WORDS = {"null", "true", "false", "yes", "no", "on", "off", "y", "n"}
"""What is not a text in YAML without quotes."""


def _yaml(text: str) -> str:
    """A text as YAML reads it: as it stands where it is plain, else in quotes, with what YAML does not print by its number."""
    if re.fullmatch(r"[A-Za-z][\w./-]*", text, re.ASCII) and text.lower() not in YAML_WORDS:
        return text
    return '"' + "".join(c if c.isprintable() and c not in '"\\' else f"\\U{ord(c):08x}" for c in text) + '"'


def _address(card: Card) -> str:
    return card.name or f"{scorer_address(card.base.model)}+DIR"


def _settings(card: Card) -> dict[str, object]:
    shown, lora, convention = card.settings, card.lora, card.weight_convention
    usual = {"anchor": 1.0, "preference_share": 0.0, "grade_share": 0.0}
    unusual = {name: value for name, usually in usual.items() if (value := getattr(card, name)) not in (None, usually)}
    rows = {
        "base": describe_base(card.base),
        "task": card.task,
        "objective": card.objective,
        "weight": f"{card.weight:g}" + (f" ({convention} convention)" if convention != "none" else ""),
        **{name.replace("_", " "): f"{value:g}" for name, value in unusual.items()},
        "views": str(card.views) if card.shuffle is None else f"{card.views}, shuffle {card.shuffle}",
        "width": ", ".join(map(str, card.widths)),
        "prompt": f"{shown.get('prompt') or 'paper'}, {shown.get('chars') or 'all'} characters of each candidate",
        "data": f"{card.data.name}, {card.data.queries} queries",
        "labels": _pairs({key: value for key, value in card.labels.items() if isinstance(value, str | int)}),
        "steps": f"{card.steps} of {card.batch or 'unknown'} windows, seed {card.seed}",
        "learning rate": f"{card.learning_rate:g}",
        "LoRA": _pairs({key: value for key, value in lora.items() if key in ("rank", "alpha", "dropout", "layers")})
        + (f"; frozen experts: {', '.join(map(str, frozen))}" if isinstance(frozen := lora.get("frozen"), list) else ""),
        "start": (card.initial or {}).get("adapter", "new"),
        "prompt hash": card.prompt_hash,
        "grade tokens": ", ".join(map(str, card.grade_tokens)),
    }
    return rows | ({"cutoff": _pairs(to_json(fitted))} if (fitted := card.cutoff) else {})


def _served(fitted: CardCutoff) -> str:
    return f"`steadyscore serve` answers `/v1/decide` without a decision by what scores at least {fitted.value:.4g}."


def _pairs(values: JsonObject) -> str:
    return ", ".join(f"{key} {value}" for key, value in values.items())


def _section(heading: str, rows: list[str], table: Sequence[str] = ()) -> list[list[str]]:
    """Rows under a heading, where there are any; as a table where its first two lines are given."""
    return [[f"## {heading}"], [*table, *rows]] if rows else []


def _findings(card: Card, helps: bool) -> list[str]:
    chosen = [finding for finding in card.findings or [] if finding.helps is helps]
    return [f"- {markdown_text(f'{finding.collection}: {finding.sentence}')}" for finding in chosen]
