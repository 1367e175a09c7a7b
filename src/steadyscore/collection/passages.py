"""Passage reranking from public files: BEIR folders, TREC topics + qrels + run, MS MARCO TSV, and ir_datasets ids; and what
every build asks for and says in its header.

Documents and rankings go through a private SQLite file on disk, so memory does not grow with the corpus.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..machine.disk import sha256
from ..terms import Candidate, Collection, Instance, TaskName, Verdict
from .catalogue import WEB, Known
from .files import SHOWN, Report
from .first_stage import FirstStage, check_stage, parse_first_stage, search_over
from .layouts import LAYOUTS, read_verdicts
from .tables import table_kind
from .trec import Document, RunLine, read_corpus, read_qrels, read_topics, read_trec_run

Choose = Callable[[Iterable[str]], list[str]]  # ids of judged queries -> those to keep, in their order
Ranked = Callable[[str], list[tuple[str, float | None]]]  # query id -> (document id, score), best first

RUN = ("run*", "*.run", "*.run.gz")
ROLES: dict[str, dict[str, tuple[str, ...]]] = {
    "beir": {
        "topics": ("queries.jsonl*",), "qrels": ("qrels/{split}.tsv*", "qrels*"), "corpus": ("corpus.jsonl*",), "run": RUN,
    },
    "trec": {
        "topics": ("topics*", "queries*"), "qrels": ("qrels*",), "corpus": ("corpus*", "collection*", "docs*"), "run": RUN,
    },
    "msmarco": {
        "topics": ("queries.{split}.tsv*", "*queries*.tsv*"), "qrels": ("qrels.{split}.tsv*", "*qrels*"),
        "corpus": ("collection.tsv*", "*passage*.gz", "*passage*.jsonl"), "run": RUN,
    },
}  # fmt: skip
"""Per format and role the names that are looked for; the first pattern with a match wins."""


@dataclass(frozen=True, slots=True)
class Files:
    """What a passage collection is built from."""

    topics: Path
    corpus: tuple[Path, ...]
    qrels: Path | None = None
    run: Path | None = None


def find_files(folder: Path, format: str, split: str) -> Files:
    """The files of a folder; every absent or ambiguous one is named at once."""
    mistakes, files = [], {}
    for role, patterns in ROLES[format].items():
        wanted = [pattern.format(split=split) for pattern in patterns]
        matching = ([path for path in sorted(folder.glob(pattern)) if path.is_file()] for pattern in wanted)
        matches = next(filter(None, matching), [])
        if role in ("topics", "corpus") and not matches:
            mistakes.append(f"{folder}: there is no {role} file; a {format} folder has {' or '.join(wanted)}.")
        if role != "corpus" and len(matches) > 1:
            several = ", ".join(path.name for path in matches)
            mistakes.append(f"{folder}: {several} could all be the {role}; leave one, or choose with --split of `data build`.")
        files[role] = matches
    if format == "beir" and not files["qrels"] and (splits := sorted(path.stem for path in folder.glob("qrels/*.tsv"))):
        mistakes.append(f"{folder}: qrels/{split}.tsv is absent; choose with --split of `data build` among {', '.join(splits)}.")
    if mistakes:
        raise InputError(mistakes)
    qrels, run = (next(iter(files[role]), None) for role in ("qrels", "run"))
    return Files(files["topics"][0], tuple(files["corpus"]), qrels, run)


class Documents:
    """Texts and rankings on disk, in a private SQLite file that vanishes with the process."""

    def __init__(self) -> None:
        self.db = sqlite3.connect("")  # "" is a temporary file, not memory
        self.db.executescript("""
            pragma cache_size = -65536;
            create table document (place integer primary key, id text unique, title text, text text);
            create table ranking (query text, rank integer, id text, score real, line text,
                                  primary key (query, rank), unique (query, id)) without rowid;
            create table wanted (id text primary key) without rowid;
        """)

    def close(self) -> None:
        self.db.close()

    def add_run(self, run: Iterable[RunLine], queries: dict[str, str], report: Report) -> None:
        """The rankings of known queries."""
        for where, query, document, rank, score in run:
            if query not in queries:
                report.notes["run lines of queries outside the collection"] += 1
                continue
            try:
                self.db.execute("insert into ranking values (?, ?, ?, ?, ?)", (query, rank, document, score, where))
                self.db.execute("insert or ignore into wanted values (?)", (document,))
            except sqlite3.IntegrityError:
                report.mistakes.append(f"{where}: query {query} already has rank {rank} or document {document}")

    def add(self, corpus: Iterable[Document], report: Report, *, wanted_only: bool) -> None:
        """Documents of a corpus, or those of its documents that a ranking names."""
        for where, id, title, text in corpus:
            if wanted_only and not self.db.execute("select 1 from wanted where id = ?", (id,)).fetchone():
                continue
            kept = (id, title, text) if text else (id, None, title or "")  # a title alone still says something
            if self.db.execute("insert or ignore into document (id, title, text) values (?, ?, ?)", kept).rowcount > 0:
                continue
            if self.db.execute("select id, title, text from document where id = ?", (id,)).fetchone() == kept:
                report.notes["documents given twice, alike"] += 1
            else:
                report.mistakes.append(f"{where}: document id {id!r} occurs twice with different texts")

    def check_run(self, report: Report) -> None:
        """Every line of a run whose document the corpus does not have, and queries in which a later rank has a higher score."""
        absent = "select line, query, id from ranking where id not in (select id from document)"
        for where, query, id in self.db.execute(absent):
            report.mistakes.append(f"{where}: document {id} of query {query} is not in the corpus")
        ahead = "select query, score > lag(score) over (partition by query order by rank) as is_higher from ranking"
        (odd,) = self.db.execute(f"select count(distinct query) from ({ahead}) where is_higher").fetchone()
        if odd:
            report.notes["queries of the run whose ranks contradict its scores; the ranks were taken"] = odd

    def wanted(self) -> list[str]:
        """Ids of the documents that a ranking names."""
        return [id for (id,) in self.db.execute("select id from wanted")]

    def text_of(self, id: str) -> tuple[str | None, str] | None:
        row: tuple[str | None, str] | None = self.db.execute("select title, text from document where id = ?", (id,)).fetchone()
        return row

    def ranking_of(self, query: str) -> list[tuple[str, float | None]]:
        return self.db.execute("select id, score from ranking where query = ? order by rank", (query,)).fetchall()

    def search_by(self, stage: FirstStage, topics: dict[str, str], depth: int) -> Ranked:
        """Rankings by a first stage over title and text of every document."""
        ids = [id for (id,) in self.db.execute("select id from document order by place")]
        both = self.db.execute("select coalesce(title || ' ', '') || text from document order by place")
        search = search_over(stage, (text for (text,) in both))
        return lambda query: [(ids[index], score) for index, score in search(topics[query], depth)]


def from_files(
    files: Files, stage: FirstStage, request: BuildRequest, report: Report, choose: Choose | None = None
) -> Iterator[Instance]:
    """Instances of files on disk. Mistakes of all of them are raised together, before the first instance."""
    verdicts = read_verdicts(request.verdicts, report)
    topics = read_topics(files.topics, report)
    qrels = read_qrels(files.qrels, report) if files.qrels else None
    yield from _over_corpus(
        topics, qrels, verdicts, None, stage, lambda _: read_corpus(files.corpus, report), request, report, choose
    )


def from_ir_datasets(
    id: str, stage: FirstStage | None, request: BuildRequest, report: Report, choose: Choose | None = None
) -> Iterator[Instance]:
    """Instances of an ir_datasets id; without a stage, over the dataset's own first-stage list."""
    import ir_datasets

    verdicts, dataset = read_verdicts(request.verdicts, report), ir_datasets.load(id)
    topics = {query.query_id: " ".join(query.default_text().split()) for query in dataset.queries_iter()}
    qrels: dict[str, dict[str, int]] = {}
    for judgement in dataset.qrels_iter():
        qrels.setdefault(judgement.query_id, {})[judgement.doc_id] = max(judgement.relevance, 0)

    def corpus(documents: Documents) -> Iterator[Document]:
        is_searched = stage and stage.kind != "run"
        return map(_document, dataset.docs_iter() if is_searched else map(dataset.docs_store().get, documents.wanted()))

    run = None if stage else _official_run(dataset)
    yield from _over_corpus(topics, qrels, verdicts, run, stage, corpus, request, report, choose)


def _over_corpus(
    topics: dict[str, str],
    qrels: dict[str, dict[str, int]] | None,
    verdicts: dict[str, Verdict],
    run: Iterable[RunLine] | None,
    stage: FirstStage | None,
    corpus: Callable[[Documents], Iterable[Document]],
    request: BuildRequest,
    report: Report,
    choose: Choose | None,
) -> Iterator[Instance]:
    """One instance per judged query: the top of the run, or of what a first stage searches, and one candidate more for pool
    replacement (rank 101).

    Empty documents are no candidates, nor is the document that is the query, where the request says so (ArguAna); ranks count
    the rest. Judged documents outside the pool keep their grade, also those the corpus does not have, as in trec_eval.
    """
    if choose:
        topics = {id: topics[id] for id in choose(id for id in topics if qrels is None or id in qrels)}
    if stage and stage.kind == "run":
        run = read_trec_run(Path(stage.argument or ""), report)
    with closing(Documents()) as documents:
        if run is not None:
            documents.add_run(run, topics, report)
        documents.add(corpus(documents), report, wanted_only=run is not None)
        documents.check_run(report)
        report.stop_at_mistakes()
        ranked = documents.search_by(stage, topics, request.depth + 2) if run is None and stage else documents.ranking_of
        for query, text in topics.items():
            judged = (qrels or {}).get(query, {})
            if qrels is not None and not judged:
                report.dropped["queries without a judgement"] += 1
                continue
            pool: list[Candidate] = []
            for id, score in ranked(query):
                title, passage = documents.text_of(id) or (None, "")
                if request.known.without_itself and id == query:
                    report.dropped["candidates that are the query itself"] += 1
                elif not passage:
                    report.dropped["empty documents"] += 1
                elif len(pool) <= request.depth:
                    pool.append(Candidate(id, passage, title, judged.get(id), len(pool) + 1, score))
            if not pool:
                report.dropped["queries without a first-stage candidate"] += 1
                continue
            in_pool = {candidate.id for candidate in pool}
            outside = {id: grade for id, grade in judged.items() if grade > 0 and id not in in_pool}
            yield Instance(query, text, tuple(pool), verdict=verdicts.get(query), judged=outside or None)


def _official_run(dataset: Any) -> Iterator[RunLine]:
    """The official first-stage list, by score; equal scores keep their order."""
    of_query: dict[str, list[tuple[str, float]]] = {}
    for scored in dataset.scoreddocs_iter():
        of_query.setdefault(scored.query_id, []).append((scored.doc_id, scored.score))
    for query, pairs in of_query.items():
        for rank, (document, score) in enumerate(sorted(pairs, key=lambda pair: -pair[1]), 1):
            yield "scoreddocs", query, document, rank, score


def _document(document: Any) -> Document:
    """An ir_datasets document: its `text` where it has one, else all its fields as ir_datasets joins them."""
    title, text = getattr(document, "title", None), getattr(document, "text", None)
    if text is None:
        title, text = None, document.default_text()
    return "docs", document.doc_id, (title or "").strip() or None, text.strip()


# -- what is asked for and what the header says, of these files and of others


@dataclass(frozen=True, slots=True)
class BuildRequest:
    """What a build is asked for: a row of the catalogue, or the same fields for data without a name."""

    known: Known
    stage: FirstStage | None = None
    depth: int = 100
    seed: int = 42
    verdicts: Path | None = None
    apart_from: str | None = None
    chars: int | None = None
    spare: int = 0
    """Instances beyond a sample or limit, from which parts replace queries whose text another part has."""


def own_files(name: str, format: str) -> Known:
    """The row of the catalogue that somebody's own files would have."""
    task = LAYOUTS[format][0] if format in LAYOUTS else "passage_reranking"
    return Known(name, task, "evaluation", 0, 0, WEB, format, "not stated", "own files", "", first_stage="bm25")


def folder_format(folder: Path) -> tuple[str, str]:
    """Format and split of a folder of public files, by their names."""
    splits = [path.name.partition(".")[0] for path in folder.glob("qrels/*.tsv*")]
    if any(folder.glob("corpus.jsonl*")) and any(folder.glob("queries.jsonl*")):
        return "beir", splits[0] if len(splits) == 1 else "test"
    if any(path.is_file() for names in ROLES["trec"].values() for name in names for path in folder.glob(name)):
        return "trec", "test"
    saved = {path.parent for path in folder.glob("*/*.arrow")}
    if parts := sorted(saved or {path for pattern in ("*", "*/*") for path in folder.glob(pattern) if table_kind(path)}):
        raise InputError(f"{folder} is not one collection; name one of its parts: {', '.join(map(str, parts[:SHOWN]))}.")
    known = "BEIR files (corpus.jsonl, queries.jsonl, qrels/), of TREC files (topics, docs, qrels, run)"
    raise InputError(
        f"{folder} holds no data that is known; give a file, or a folder of {known} or of a saved Hugging Face dataset."
    )


def from_passages(
    folder: Path, request: BuildRequest, report: Report, choose: Choose | None = None
) -> tuple[Collection, Iterator[Instance]]:
    """A collection of passage files, of which `choose` names the queries."""
    known = request.known
    files = find_files(folder, known.format, known.split)
    stage = request.stage or (FirstStage("run", str(files.run)) if files.run else parse_first_stage(known.first_stage or "bm25"))
    check_stage(stage)
    run = Path(stage.argument) if stage.kind == "run" and stage.argument else None
    instances = from_files(files, stage, request, report, choose)
    return header(request, report, [files.topics, files.qrels, *files.corpus, run, request.verdicts], stage), instances


def raise_mistakes_at_end(instances: Iterator[Instance], report: Report) -> Iterator[Instance]:
    """The stream, and at its end every mistake: nothing is renamed into place before that."""
    count = 0
    for count, instance in enumerate(instances, 1):  # noqa: B007
        yield instance
    report.stop_at_mistakes()
    if not count:
        filters = ", ".join(f"{what} ({times:,})" for what, times in report.dropped.items()) or "the source is empty"
        raise InputError(f"no query is left: {filters}. Check that the files belong together.")


def header(request: BuildRequest, report: Report, used: Iterable[Path | None], stage: FirstStage | None) -> Collection:
    """The header. `dropped` and `notes` are the report's own counters: they fill while the instances are drawn."""
    known = request.known
    is_passages = known.format in ROLES
    details: dict[str, Any] = {"licence": known.licence, "source": known.source, "role": known.role}
    if is_passages:
        details["depth"] = request.depth
        details["first_stage"] = stage.provenance if stage else {"kind": "run", "source": f"{known.ir_datasets} scoreddocs"}
    details["sources"] = checksums([path for path in used if path])
    details |= {"filters": list(known.filters), "dropped": report.dropped, "notes": report.notes, "seed": request.seed}
    task: TaskName = "claim_verification" if request.verdicts else known.task  # scored alike, and a reader can judge it
    return Collection(known.name, task, chars=request.chars or known.chars, details=details)


def checksums(paths: Iterable[Path]) -> list[dict[str, str]]:
    """Name and SHA-256 of the files a collection was made of."""
    return [{"file": path.name, "sha256": sha256(path)} for path in paths if path.is_file()]
