"""`steadyscore.audit`: scorers on collections under M permutations, scored once, measured once.

Without `out` nothing is kept: the run folder is a temporary one. With it the same call resumes where it was stopped, and one
that asks for more queries or permutations scores only what is missing.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Unpack

from ..collection import Data, Names, Source, name_columns, open_collection
from ..engines import Backend, EngineOptions
from ..engines.kinds import check_address, check_reader, honoured, open_engine, parse_address
from ..engines.python import open_object
from ..errors import InputError, SteadyscoreError, UsageError
from ..machine import console
from ..machine.console import bar, job
from ..machine.disk import explaining_os_errors, lock_folder, write_record, write_tables
from ..machine.extras import PAGE, absent_modules
from ..machine.names import slug
from ..machine.places import Place, parse_place
from ..measures.ir_library import library_values, parse_measures
from ..measures.threshold import Threshold
from ..readers.outputs import reader_label
from ..readers.reader import ask_reader
from ..results.audit import Audit
from ..results.figure import mean_figure
from ..results.load import budget_values, load_run, match_threshold, same_evidence_control
from ..results.measured_run import ReaderReport
from ..results.screen import measure_tables
from ..runs.folder import Run
from ..runs.layout import DECISIONS_FILE, MEASURES_FILE, RECORD_FILE, SUMMARY_FILE, measure_schema
from ..runs.table import Scored
from ..scoring.config import AuditConfig, AuditSettings, changed_settings, check_use, configure, in_precision_of, scorer_for
from ..scoring.estimate import remember_speed
from ..scoring.mitigations import mitigate
from ..scoring.parts import Cluster, Worker, score_on
from ..scoring.perturbation import noise_floor, score_perturbed
from ..scoring.score import GIVEN, check_apart, check_query_ids, cut_instances, keep_scores, score_collection
from ..scoring.scorer import PoolScorer
from ..scoring.until import check_until, check_until_scorer, narrow
from ..tasks import TASKS, reader_kind
from ..terms import Failure
from .audits import Audits
from .score_arrays import GivenScores, read_any_scores

Scorers = Callable[[str, Sequence[str]], Any] | Any
"""An address, a Python callable, an object with `.predict` or `.rank`, an opened backend; or several, in a list or by name."""


READ_OF_SCORES = (
    "cutoff", "match_retention", "keep_first", "keep_share", "threshold_protocol", "readout", "ties", "serving_permutations", "ir"
)  # fmt: skip
"""The settings that say something of scores that exist already."""


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
    how = configure(config or AuditConfig(), settings)
    place = None if out is None else parse_place(out)
    if scores is not None:
        if scorers is not None or data is not None:
            raise InputError("scores are measured as they are, without a scorer and data. Leave these out, or leave out scores.")
        given = {"options": options, "on": on, "columns": columns, "allow_scorer_change": allow_scorer_change}
        unread = [name for name in changed_settings(how) if name not in READ_OF_SCORES] + [name for name in given if given[name]]
        if unread:
            raise InputError(f"scores are measured and nothing is scored: leave out {', '.join(unread)}.")
        parse_measures(list(how.ir))
        with working_folder(place) as folder:
            audits = [_audit_scores(read_any_scores(scores, relevance, name), how, folder, command)]
            return write_results(audits, place, report)
    if name is not None:
        raise InputError("name is that of scores; a scorer is named in a mapping: {name: scorer}.")
    sources = [name_columns(one, columns) for one in list_sources(data)]
    engine = options or EngineOptions()
    work = ScorerInput(name_scorers(scorers), sources, how, engine, place, quiet, command, allow_scorer_change)
    if on is not None:
        if how.until is not None:
            raise UsageError("until decides after every query, and workers score apart. Leave out one of on and until.")
        score_on(on, work, console.say)
    with working_folder(place) as folder:
        return write_results(_audit_scorers(work, folder), place, report)


def name_scorers(scorers: Scorers) -> dict[str, object]:
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
class ScorerInput:
    """Scorers and the data they are audited on, before any of it is opened; also what workers are told (`scoring.parts.Work`).

    Perturbations, readers and the noise floor are left to the call that collects: they are made from complete runs.
    """

    scorers: Mapping[str, Any]
    data: Sequence[Data]
    config: AuditConfig
    options: EngineOptions
    folder: Place | None
    """Where runs are kept; None keeps nothing."""
    quiet: bool = False
    command: Sequence[str] = ()
    """What made the runs, for their records."""
    allow_scorer_change: bool = False

    def open_sources(self) -> list[Source]:
        """The collections, whose scorers, settings and cut fit."""
        config = self.config
        sources = open_sources(self.scorers, self.data, config)
        check_query_ids(sources, config.cut)
        check_apart(sources, config.cut, config.apart_from)
        for source in sources:
            check_until(
                config, source.collection.name, list(cut_instances(source.instances(), config.cut)) if config.until else []
            )
        check_use(self.scorers, config, self.options, config.readers, config.perturb)
        return sources

    def open_scorers(self, sources: Sequence[Source], out: Place) -> Iterator[tuple[str, Backend, list[tuple[Source, Place]]]]:
        """Every scorer, opened before the first of its collections, with these and the folder of each run."""
        places = run_folders(out, self.scorers, sources)
        for name, scorer in self.scorers.items():
            folders = [places[name, source.name] for source in sources]
            with job(f"loading {name}", unit="", hidden=self.quiet):
                backend = open_backend(name, scorer, in_precision_of(folders, scorer, self.options))
            yield name, backend, list(zip(sources, folders, strict=True))

    def workers(self) -> Iterator[tuple[str, Worker]]:
        """A worker for every scorer on every collection."""
        if self.folder is None:
            raise InputError("workers need a run folder that all of them see. Say where it is with --out.")
        for name, backend, runs in self.open_scorers(self.open_sources(), self.folder):
            for source, folder in runs:
                served = mitigate(scorer_for(backend, source.collection, self.config), self.config.mitigations)
                worker = Worker(served, source, folder, self.config, self.command, allow_scorer_change=self.allow_scorer_change)
                yield f"{name} on {source.collection.name}", worker


def _audit_scorers(given: ScorerInput, folder: Place) -> list[Audit]:
    """Score, measure and keep every scorer on every collection; each collection is opened once."""
    config, sources = given.config, given.open_sources()
    for source in sources:  # a run that cannot be matched is said before anything is scored
        match_threshold(config.threshold, source.collection.name, config.view)
    audits: list[Audit] = []
    for name, backend, runs in given.open_scorers(sources, folder):
        check_until_scorer(config, backend, name)
        for source, place in runs:
            before = next((audit for audit in audits if audit.opened is source), None)
            audits.append(_audit_one(given, name, backend, source, place, before))
    return audits


def _audit_one(given: ScorerInput, name: str, backend: Backend, source: Source, folder: Place, before: Audit | None) -> Audit:
    """One scorer on one collection; `before` is the audit of the first scorer of the call."""
    config, quiet, address = given.config, given.quiet, given.scorers[name]
    scorer = mitigate(scorer_for(backend, source.collection, config), config.mitigations)
    progress = bar(f"{name} on {source.collection.name}", quiet)
    by = match_threshold(config.threshold, source.collection.name, config.view)
    run = score_collection(
        scorer, source, folder, replace(config, threshold=by), command=list(given.command), progress=progress,
        allow_scorer_change=given.allow_scorer_change,
    )  # fmt: skip
    scoring = run.record.coverage
    if scoring and scoring.tokens and scoring.seconds is not None and not config.mitigations:
        remember_speed(address if isinstance(address, str) else name, scoring.tokens, scoring.seconds)
    queries = run.read_queries()
    own_name = scorer.name if name != address else run.record.name  # a name that the caller gave stays with the run
    if config.until is not None:  # what was scored of it
        part = run.record.fingerprint
        config = narrow(config, part.permutations or config.permutations, part.query_ids)
    with lock_folder(folder):  # scoring has given it back
        failed = _score_besides(scorer, run, queries, source, config, quiet)
        reports = {reader: _read(run, queries, reader, source, given) for reader in config.readers}
        run.update_record(threshold=stored_threshold(by), reading=config.view.reading, name=own_name)
    first = [reader_label(reader, config.reader_k, config.view) for reader in config.readers[:1]] or None
    measured = _measure(run, config, first, queries, source)
    if before is not None and config.view.serving_permutations == 1:
        reports = {
            reader: replace(
                report,
                same_evidence={"against": before.name}
                | same_evidence_control(before, measured, reader, config.reader_k)._asdict(),
            )
            for reader, report in reports.items()
        }
    return replace(
        measured,
        failed=failed,
        reader_reports=reports,
        curve=budget_values(run, queries, config.threshold, view=config.view) if config.curve else None,
    )


def _measure(
    run: Run, config: AuditConfig, readers: Sequence[str] | None, queries: Sequence[Scored], source: Source | None = None
) -> Audit:
    """A run measured as the configuration says, with the figures of further ranking measures; their library is imported only
    where one is asked for.
    """
    audit = load_run(run, config.threshold, config.view, readers, queries=queries, source=source)
    library = library_values(audit.queries, list(config.ir)) if config.ir else {}
    return replace(audit, figures=audit.figures | {name: mean_figure(values) for name, values in library.items()})


def stored_threshold(by: Threshold) -> dict[str, object]:
    """A threshold as a run keeps it: one that was matched to another run by the share that came of it."""
    return {name: value for name, value in asdict(by).items() if name != "retention_of"}


def _score_besides(
    scorer: PoolScorer, run: Run, queries: Sequence[Scored], source: Source, config: AuditConfig, quiet: bool
) -> dict[str, list[Failure]]:
    """Noise floor and perturbations, where asked for, kept beside the run; gives what failed, by flag."""
    failed: dict[str, list[Failure]] = {}
    if config.noise_floor or config.noise_reads:
        progress = bar(f"{scorer.name}, noise floor", quiet)
        floor, failed["noise-floor"] = noise_floor(scorer, source, config, run.read_noise(), progress, run.write_noise)
        if floor:
            run.write_noise(floor)
    if config.perturb:
        progress = bar(f"{scorer.name}, perturbed", quiet)
        kinds = [kind for kind in config.perturb if "markers" not in kind or "markers" in honoured(scorer.backend)]
        unmoved = score_perturbed(scorer, run, source, config, kinds, progress, scored=queries)
        failed |= {f"perturb {kind}": failures for kind, failures in unmoved.items()}
    return {flag: failures for flag, failures in failed.items() if failures}


def _read(run: Run, queries: Sequence[Scored], reader: str, source: Source, given: ScorerInput) -> ReaderReport:
    config = given.config
    answers = ask_reader(
        run, source, reader, scored=queries, k=config.reader_k, view=config.view,
        options=given.options, progress=bar(f"{reader} reads", given.quiet),
    )  # fmt: skip
    figures = {name: mean_figure(values) for name, values in answers.values.items()}
    return ReaderReport(config.reader_k, figures, answers.asked, answers.failed, answers.spent)


# -- before anything is scored


def open_sources(scorers: Mapping[str, Any], data: Sequence[Data], config: AuditConfig, *, is_plan: bool = False) -> list[Source]:
    """The collections, opened; whatever is named and cannot be used is refused, all at once: scoring may take hours."""
    sources: list[Source] = []
    checks: list[Callable[[], Any]] = [
        *(partial(parse_address if is_plan else check_address, one) for one in scorers.values() if isinstance(one, str)),
        *(partial(check_reader, reader) for reader in config.readers),
        *(partial(check_address, reader) for reader in config.readers if not is_plan),
        *(partial(_open_source, one, sources, bool(config.readers)) for one in data),
        partial(parse_measures, list(config.ir)),
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


# -- scores that exist


def _audit_scores(given: GivenScores, config: AuditConfig, folder: Place, command: Sequence[str]) -> Audit:
    """Measure scores that somebody else gave."""
    if config.threshold.retention_of is not None:
        raise InputError("scores in a file belong to no collection, so no run can be matched. Give a share to keep, such as 0.3.")
    run = keep_scores(given.queries, given.name, given.digests, only_run_folder(folder, GIVEN, given.name), list(command))
    notes = {"notes": given.notes} if given.notes else {}
    run.update_record(threshold=stored_threshold(config.threshold), reading=config.view.reading, **notes)
    return _measure(run, config, None, given.queries)


# -- what is kept


@contextmanager
def working_folder(out: Place | None) -> Iterator[Place]:
    """The folder to work in: the one asked for, or one that goes with the call."""
    if out is not None:
        yield out
        return
    with tempfile.TemporaryDirectory(prefix="steadyscore-") as folder:
        yield Path(folder) / "run"


def write_results(audits: Sequence[Audit], out: Place | None, report: bool) -> Audits:
    """Audits, after tables, summary and page were written next to their runs; without a place, of no folder."""
    if out is None:
        return Audits([replace(audit, folder=None) for audit in audits])
    results = Audits(list(audits))
    with explaining_os_errors(out):
        write_tables(out / MEASURES_FILE, measure_schema(), measure_tables(results))
        write_record(out / SUMMARY_FILE, results.to_json())
    if report and not absent_modules(PAGE):
        results.page = results.report(out / "report")
    return results


# -- where it is kept


def run_folders(out: Place, scorers: Iterable[str], sources: Sequence[Source]) -> dict[tuple[str, str], Place]:
    """(scorer, collection) -> where its run goes."""
    names = [source.name for source in sources]
    if twice := [name for place, name in enumerate(names) if name in names[:place]]:
        raise InputError(f"{twice[0]} is given twice. Name every collection once.")
    pairs = [(name, source) for name in scorers for source in sources]
    if len(pairs) == 1:
        ((name, source),) = pairs
        return {(name, source.name): only_run_folder(out, source.collection.name, name)}
    folders = {(name, source.name): _run_folder(out, source.collection.name, name) for name, source in pairs}
    kept: dict[Place, str] = {}
    for (name, data), folder in folders.items():
        if folder in kept:
            raise InputError(f"{kept[folder]} and {name} on {data} would be kept in one folder, {folder}. Give each an --out.")
        kept[folder] = f"{name} on {data}"
    return folders


def decision_folders(out: Place, scorers: Sequence[str]) -> list[Place]:
    """Where the audit of decisions of each scorer goes; one that an earlier version began in `out` itself goes on there."""
    if len(scorers) == 1 and (out / DECISIONS_FILE).exists():
        return [out]
    return [out / slug(scorer) for scorer in scorers]


def only_run_folder(out: Place, collection: str, scorer: str) -> Place:
    """Where the run goes of an audit that has one: where earlier versions put it if it began there, in `out` itself."""
    return out if (out / RECORD_FILE).exists() else _run_folder(out, collection, scorer)


def _run_folder(out: Place, collection: str, scorer: str) -> Place:
    return out / slug(collection) / slug(scorer)
