"""`steadyscore.audit`: scorers on collections under M permutations, scored once, measured once.

Without `out` nothing is kept: the run folder is a temporary one. With it the same call resumes where it was stopped, and one
that asks for more queries or permutations scores only what is missing.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Unpack

from ..collection import Data, Names, Source, name_columns, open_collection
from ..engines import Backend, EngineOptions
from ..engines.generator import Decoding
from ..engines.kinds import check_address, check_reader, honoured, open_engine, parse_address
from ..engines.python import open_object
from ..errors import InputError, SteadyscoreError
from ..machine import console
from ..machine.disk import explaining_os_errors, lock_folder, write_record, write_tables
from ..machine.extras import PAGE, absent_modules
from ..machine.places import Place, parse_place
from ..machine.progress import bar, job
from ..measures.answers import EVIDENCE
from ..measures.ir_library import library_values, parse_measures
from ..measures.reading import Reading
from ..measures.threshold import Threshold
from ..readers.outputs import reader_label
from ..readers.reader import ask_reader
from ..runs.folder import Run
from ..runs.layout import MEASURES_FILE, SUMMARY_FILE, measure_schema
from ..runs.table import Scored
from ..scoring.estimate import remember_speed
from ..scoring.mitigations import mitigate
from ..scoring.parts import Worker
from ..scoring.perturbation import PERTURBATIONS, Perturbation, score_perturbed
from ..scoring.ray_launcher import Cluster
from ..scoring.rereads import noise_floor
from ..scoring.score import GIVEN, AuditConfig, check_apart, check_query_ids, check_use, keep_scores, score_collection, scorer_for
from ..scoring.scorer import PoolScorer
from ..scoring.workers import score_on
from ..tasks import TASKS, reader_kind
from ..terms import Failure
from .configuration import AuditSettings, configure
from .figure import mean_figure
from .folders import only_run_folder, run_folders
from .load import budget_values, load_run, match_threshold, same_evidence_control
from .result import Audit, Audits, ReaderReport
from .score_arrays import GivenScores, read_any_scores
from .table import measure_tables

Scorers = Callable[[str, Sequence[str]], Any] | Any
"""An address, a Python callable, an object with `.predict` or `.rank`, an opened backend; or several, in a list or by name."""


@dataclass(frozen=True, slots=True)
class Additions:
    """What an audit does in addition to scoring every permutation."""

    mitigations: Sequence[str] = ()
    """Served in another way, the first innermost."""
    perturb: Sequence[Perturbation] = ()
    """Also change the pool or the markers at a fixed order."""
    readers: Sequence[str] = ()
    """Frozen models that read the first candidates."""
    reader_k: int = EVIDENCE
    reader_decoding: Decoding = "greedy"
    """How a verdict is read."""
    ir: Sequence[str] = ()
    """Further ranking measures that ir_measures knows."""
    serving_permutations: int = 1
    """Measure what a system that averages K permutations would decide."""
    curve: bool = False
    """Every measure at each serving budget too."""
    apart_from: Sequence[Data] = ()
    """Refuse data that shares queries or passages with these collections."""

    def __post_init__(self) -> None:
        listed = {"mitigations": self.mitigations, "perturb": self.perturb, "readers": self.readers, "ir": self.ir}
        mistakes = [f"{name} is {value!r}: give a list." for name, value in listed.items() if isinstance(value, str)]
        unknown = [] if isinstance(self.perturb, str) else [kind for kind in self.perturb if kind not in PERTURBATIONS]
        mistakes += [f"there is no perturbation {kind!r}; there are {', '.join(PERTURBATIONS)}." for kind in unknown]
        if mistakes:
            raise InputError(mistakes)


@dataclass(frozen=True, slots=True)
class Output:
    """Where an audit is kept and what it says meanwhile."""

    folder: Place | None = None
    report: bool = True
    quiet: bool = False
    """No progress."""
    command: Sequence[str] = ()
    """What made the run, for its record."""
    allow_scorer_change: bool = False
    """Resume a run whose scorer has changed since; the run says so."""
    say: Callable[[str], None] = field(default=console.say)


def audit(
    scorers: Scorers = None,
    data: Data = None,
    *,
    scores: Any = None,
    relevance: Any = None,
    name: str | None = None,
    out: str | Place | None = None,
    config: AuditConfig | None = None,
    options: EngineOptions | None = None,
    mitigations: Sequence[str] = (),
    perturb: Sequence[Perturbation] = (),
    readers: Sequence[str] = (),
    reader_k: int = EVIDENCE,
    reader_decoding: Decoding = "greedy",
    ir: Sequence[str] = (),
    serving_permutations: int = 1,
    curve: bool = False,
    apart_from: Sequence[Data] = (),
    report: bool = True,
    quiet: bool = False,
    command: Sequence[str] = (),
    allow_scorer_change: bool = False,
    on: str | Cluster | None = None,
    columns: Names = None,
    **settings: Unpack[AuditSettings],
) -> Audits:
    """Audit scorers on collections: quality, order instability and what their consumers decide, with intervals.

    scorers   an address, a callable `(query, texts) -> scores`, any object with `.predict` or `.rank`; or several of them
    data      a collection's name, a file, a list of dicts, a pandas or polars frame, a Hugging Face dataset; or several files
    columns   which column of the data is what, where names are unknown: {"query": "question", "text": "body"}
    apart_from  collections that a scorer was trained on: data that shares a query or a passage with one is refused
    scores    measure these instead of scoring: an array (M, n) or (Q, M, n), a frame, a file, or {query id: array}
    name      what the scores are called; otherwise their file, or "scores"
    out       keep runs, tables and the page here; the same call resumes what was stopped. None keeps nothing.
    on        "ray", "ray:auto", "ray://head:10001" or a `Cluster`: score there, into `out`, which all machines see; measure here
    settings  permutations=5, width=10, match_retention=0.3, ...: fields of the configuration by name

    >>> print(steadyscore.audit(lambda query, texts: [len(text) for text in texts], "passages"))
    """
    how = configure(config or AuditConfig(), **settings)
    additions = Additions(mitigations, perturb, readers, reader_k, reader_decoding, ir, serving_permutations, curve, apart_from)
    output = Output(None if out is None else parse_place(out), report, quiet, command, allow_scorer_change)
    if scores is not None:
        if scorers is not None or data is not None:
            raise InputError("scores are measured as they are, without a scorer and data. Leave these out, or leave out scores.")
        return audit_scores(read_any_scores(scores, relevance, name), how.threshold, additions, output, how.reading)
    if name is not None:
        raise InputError("name is that of scores; a scorer is named in a mapping: {name: scorer}.")
    sources = [name_columns(one, columns) for one in list_sources(data)]
    work = AuditWork(name_scorers(scorers), sources, how, options or EngineOptions(), additions, output)
    if on is not None:
        score_on(on, work, output.say)
    return audit_scorers(work)


def open_one(scorer: Any, data: Data, config: AuditConfig, options: EngineOptions | None, study: str) -> tuple[str, Any, Source]:
    """The scorer, by its name, and the collection of a study that takes one of each; what is wrong with them at once."""
    (name, one), *others = name_scorers(scorer).items()
    if others:
        raise InputError(f"{study} takes one scorer at a time, and {len(others) + 1} were given.")
    (source,) = open_sources({name: one}, [data], Additions())
    check_query_ids([source], config.cut)
    check_use({name: one}, config, options)
    return name, one, source


def name_scorers(scorers: Scorers) -> dict[str, Any]:
    """Scorers by the name each goes by: its address, or what Python calls it."""
    given = scorers if isinstance(scorers, list | tuple | Mapping) else [] if scorers is None else [scorers]
    if not given:
        raise InputError("there is nothing to audit. Give a scorer: an address such as 'smollm2-135m', or a function.")
    if isinstance(given, Mapping):
        return dict(given)
    names = [one if isinstance(one, str) else open_object(one).name for one in given]
    return {
        name if names.count(name) == 1 else f"{name} {i}": one for i, (name, one) in enumerate(zip(names, given, strict=True))
    }


def list_sources(data: Data) -> list[Data]:
    """One collection, or several by name or file; a list of dicts is one."""
    if data is None:
        raise InputError("there is no data. Give a collection's name (`steadyscore data list` prints them), a file or rows.")
    is_several = isinstance(data, list | tuple) and data and all(isinstance(one, str | Place | Source) for one in data)
    return list(data) if is_several else [data]


@dataclass(frozen=True, slots=True)
class AuditWork:
    """An audit whose scoring is done by workers (`scoring.workers.Work`).

    Perturbations, readers and the noise floor are left to the call that collects: they are made from complete runs.
    """

    scorers: Mapping[str, Any]
    data: Sequence[Data]
    config: AuditConfig
    options: EngineOptions
    additions: Additions
    output: Output

    @property
    def quiet(self) -> bool:
        return self.output.quiet

    def workers(self) -> Iterator[tuple[str, Worker]]:
        """A worker for every scorer on every collection; a scorer is opened before the first of its collections."""
        if self.output.folder is None:
            raise InputError("workers need a run folder that all of them see. Say where it is with --out.")
        sources = open_work(self)
        places = run_folders(parse_place(self.output.folder), self.scorers, sources)
        for name, scorer in self.scorers.items():
            folders = [places[name, source.name] for source in sources]
            with job(f"loading {name}", unit="", hidden=self.quiet):
                backend = open_backend(name, scorer, self.options)
            for source, folder in zip(sources, folders, strict=True):
                served = mitigate(scorer_for(backend, source.collection, self.config), self.additions.mitigations)
                allowed = self.output.allow_scorer_change
                worker = Worker(served, source, folder, self.config, self.output.command, allow_scorer_change=allowed)
                yield f"{name} on {source.collection.name}", worker


def audit_scorers(call: AuditWork) -> Audits:
    """Score, measure and keep every scorer on every collection; each collection is opened once."""
    config, options, additions, output = call.config, call.options, call.additions, call.output
    sources = open_work(call)
    for source in sources:  # a run that cannot be matched is said before anything is scored
        match_threshold(config.threshold, source.collection.name, additions.serving_permutations, config.reading)
    with working_folder(output) as folder:
        places = run_folders(folder, call.scorers, sources)
        audits: list[Audit] = []
        for name, scorer in call.scorers.items():
            with job(f"loading {name}", unit="", hidden=output.quiet):
                backend = open_backend(name, scorer, options)
            for source in sources:
                before = next((audit for audit in audits if audit.opened is source), None)
                address = scorer if isinstance(scorer, str) else None
                work = _Work(config, options, additions, output, source, places[name, source.name], address)
                audits.append(_audit_one(backend, name, work, before))
        return write_results(Audits(audits), folder, output)


@dataclass(frozen=True, slots=True)
class _Work:
    """One scorer on one collection."""

    config: AuditConfig
    options: EngineOptions
    additions: Additions
    output: Output
    source: Source
    folder: Place
    address: str | None
    """The scorer's, where it has one."""


def _audit_one(backend: Backend, name: str, work: _Work, before: Audit | None) -> Audit:
    config, additions, source = work.config, work.additions, work.source
    scorer = mitigate(scorer_for(backend, source.collection, config), additions.mitigations)
    progress = bar(f"{name} on {source.collection.name}", work.output.quiet)
    run = score_collection(
        scorer, source, work.folder, config, command=list(work.output.command), progress=progress,
        allow_scorer_change=work.output.allow_scorer_change,
    )  # fmt: skip
    scoring = run.record["coverage"]
    if scoring.get("tokens") and not additions.mitigations:
        remember_speed(work.address or name, scoring["tokens"], scoring["seconds"])
    queries = run.read_queries()
    own_name = scorer.name if name != work.address else run.record["name"]  # a name that the caller gave stays with the run
    by = match_threshold(config.threshold, run.record["collection"], additions.serving_permutations, config.reading)
    with lock_folder(work.folder):  # scoring has given it back
        failed = _score_additions(scorer, run, queries, work)
        reports = {reader: _read(run, queries, reader, work) for reader in additions.readers}
        run.update_record(threshold=stored_threshold(by), reading=asdict(config.reading), name=own_name)
    served = (additions.reader_k, additions.serving_permutations, config.reading, additions.reader_decoding)
    first = [reader_label(reader, *served) for reader in additions.readers[:1]] or None
    found = load_run(
        run, config.threshold, additions.serving_permutations, first, reading=config.reading, queries=queries, source=source
    )
    if before is not None and additions.serving_permutations == 1:  # against the first scorer of the call
        reports = {
            reader: replace(
                report,
                same_evidence={"against": before.name}
                | same_evidence_control(before, found, reader, additions.reader_k, additions.reader_decoding)._asdict(),
            )
            for reader, report in reports.items()
        }
    library = {name: mean_figure(values) for name, values in _library(found.queries, additions.ir).items()}
    return replace(
        found,
        folder=None if work.output.folder is None else found.folder,
        figures=found.figures | library,
        failed=failed,
        reader_reports=reports,
        curve=budget_values(run, queries, config.threshold, reading=config.reading) if additions.curve else None,
    )


def stored_threshold(by: Threshold) -> dict[str, Any]:
    """A threshold as a run keeps it: one that was matched to another run by the share that came of it."""
    return {name: value for name, value in asdict(by).items() if name != "retention_of"}


def _score_additions(scorer: PoolScorer, run: Run, queries: Sequence[Scored], work: _Work) -> dict[str, list[Failure]]:
    """Noise floor and perturbations, where asked for, kept beside the run; gives what failed, by flag."""
    failed: dict[str, list[Failure]] = {}
    if work.config.noise_floor or work.config.noise_reads:
        floor, failed["noise-floor"] = noise_floor(
            scorer,
            work.source,
            work.config,
            run.read_noise(),
            bar(f"{scorer.name}, noise floor", work.output.quiet),
            run.write_noise,
        )
        if floor:
            run.write_noise(floor)
    if work.additions.perturb:
        progress = bar(f"{scorer.name}, perturbed", work.output.quiet)
        kinds = [kind for kind in work.additions.perturb if "markers" not in kind or "markers" in honoured(scorer.backend)]
        unmoved = score_perturbed(scorer, run, work.source, work.config, kinds, progress, scored=queries)
        failed |= {f"perturb {kind}": failures for kind, failures in unmoved.items()}
    return {flag: failures for flag, failures in failed.items() if failures}


def _read(run: Run, queries: Sequence[Scored], reader: str, work: _Work) -> ReaderReport:
    additions = work.additions
    found = ask_reader(
        run, work.source, reader, scored=queries, k=additions.reader_k, serving_permutations=additions.serving_permutations,
        reading=work.config.reading, decoding=additions.reader_decoding, options=work.options,
        progress=bar(f"{reader} reads", work.output.quiet),
    )  # fmt: skip
    figures = {name: mean_figure(values) for name, values in found.values.items()}
    return ReaderReport(additions.reader_k, figures, found.asked, found.failed, found.spent)


# -- before anything is scored


def open_work(work: AuditWork) -> list[Source]:
    """The collections of an audit, whose scorers, settings and cut were found to fit."""
    config, additions = work.config, work.additions
    sources = open_sources(work.scorers, work.data, additions)
    check_query_ids(sources, config.cut)
    check_apart(sources, config.cut, additions.apart_from)
    check_use(work.scorers, config, work.options, additions.readers, additions.perturb)
    return sources


def open_sources(
    scorers: Mapping[str, Any], data: Sequence[Data], additions: Additions, *, is_plan: bool = False
) -> list[Source]:
    """The collections, opened; whatever is named and cannot be used is refused, all at once: scoring may take hours."""
    sources: list[Source] = []
    checks: list[Callable[[], Any]] = [
        *(partial(parse_address if is_plan else check_address, one) for one in scorers.values() if isinstance(one, str)),
        *(partial(check_reader, reader) for reader in additions.readers),
        *(partial(check_address, reader) for reader in additions.readers if not is_plan),
        *(partial(_open_source, one, sources, bool(additions.readers)) for one in data),
        partial(parse_measures, list(additions.ir)),
    ]
    mistakes: list[str] = []
    for check in checks:
        try:
            check()
        except SteadyscoreError as error:
            mistakes += getattr(error, "mistakes", [str(error)])
    if mistakes:
        raise InputError(list(dict.fromkeys(mistakes)))
    return sources


def _open_source(data: Data, opened: list[Source], is_read: bool) -> None:
    source = open_collection(data)
    if is_read:
        reader_kind(TASKS[source.collection.task])  # refuses a task that nobody reads for
    opened.append(source)


def open_backend(name: str, scorer: Any, options: EngineOptions) -> Backend:
    """An opened scorer, by its address or as an object, called as the user calls it."""
    backend = open_engine(scorer, options) if isinstance(scorer, str) else open_object(scorer, name)
    backend.called = None if name == scorer else name
    return backend


def _library(queries: Sequence[Scored], names: Sequence[str]) -> dict[str, Any]:
    """Further ranking measures, query by query; the library is imported only where one is asked for."""
    return library_values(queries, list(names)) if names else {}


# -- scores that exist


def audit_scores(
    given: GivenScores, threshold: Threshold, additions: Additions, output: Output, reading: Reading | None = None
) -> Audits:
    """Measure scores that somebody else gave."""
    if threshold.retention_of is not None:
        raise InputError("scores in a file belong to no collection, so no run can be matched. Give a share to keep, such as 0.3.")
    with working_folder(output) as folder:
        place = only_run_folder(folder, GIVEN, given.name)
        run = keep_scores(given.queries, given.name, given.digests, place, list(output.command))
        how = reading or Reading()
        run.update_record(
            threshold=stored_threshold(threshold), reading=asdict(how), **({"notes": given.notes} if given.notes else {})
        )
        found = load_run(run, threshold, additions.serving_permutations, reading=how, queries=given.queries)
        library = {name: mean_figure(values) for name, values in _library(found.queries, additions.ir).items()}
        kept = replace(found, figures=found.figures | library, folder=None if output.folder is None else run.folder)
        return write_results(Audits([kept]), folder, output)


# -- what is kept


@contextmanager
def working_folder(output: Output) -> Iterator[Place]:
    """The folder to work in: the one asked for, or one that goes with the call."""
    if output.folder is not None:
        yield output.folder
        return
    with tempfile.TemporaryDirectory(prefix="steadyscore-") as folder:
        yield Path(folder) / "run"


def write_results(audits: Audits, folder: Place, output: Output) -> Audits:
    """Write tables, summary and page beside the runs."""
    if output.folder is None:
        return audits
    with explaining_os_errors(folder):
        write_tables(folder / MEASURES_FILE, measure_schema(), measure_tables(audits))
        write_record(folder / SUMMARY_FILE, audits.to_json())
    if output.report and not absent_modules(PAGE):
        audits.page = audits.report(folder / "report")
    return audits
