"""`steadyscore data`: list, get, check, show, build and export collections; get embedded models."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from ..collection import EMBEDDED, cache_folder, check, location, names, open_collection, path_of, read_instances, write
from ..collection.build import EXPORT_FORMATS, FORMATS, export, from_folder, from_hub
from ..collection.catalogue import CATALOGUE, Known, collection_card, count_mistake, how_to_get
from ..collection.files import Report
from ..collection.first_stage import parse_first_stage
from ..collection.passages import BuildRequest, own_files
from ..collection.splits import shared_mistakes, split_parts
from ..errors import InputError, UsageError
from ..machine.console import bar
from ..machine.disk import scratch_beside
from ..machine.extras import check_installed
from ..machine.names import PLAIN_RULE, is_plain_name
from ..models.embedded import CONVERSION, is_present, model_path
from ..models.embedded import EMBEDDED as EMBEDDED_MODELS
from ..terms import Collection, Instance
from .flags import add_columns, local_path, mode_mistakes, positive
from .shared import add_json, cell_text, examples, note, print_json, print_rows, refuse

SPARE = 1000
"""Queries drawn beyond what the parts of a training pool need; the texts that recur are far fewer."""


def arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    def action(name: str, help: str) -> argparse.ArgumentParser:
        added = actions.add_parser(name, help=help, description=help[0].upper() + help[1:] + ".")
        add_json(added)
        return added

    def add_source(added: argparse.ArgumentParser) -> None:
        added.add_argument("source", metavar="NAME|FILE|FOLDER")
        add_columns(added)

    action("list", "every collection with a name, whether it is on this machine, and how to get it")
    get = action("get", "download a collection of the paper and bring it into our format; or an embedded model")
    _add_get_flags(get)
    checking = action("check", "report every mistake of a collection with its line, and its count against the paper's table")
    add_source(checking)
    checking.add_argument(
        "--apart-from",
        metavar="NAME|FILE",
        help="also report queries (by id or text) and candidates (by text) that this has too",
    )
    show = action("show", "the card of a collection: sizes, golds, chance level, filters, licence, provenance")
    add_source(show)
    build = action("build", "convert files on disk; every mistake is listed before anything is written")
    build.add_argument("name", metavar="NAME", help="a name of `data list`, or your own name together with --format")
    build.add_argument(
        "--from", dest="folder", type=local_path, required=True, metavar="FOLDER", help="the public files, or one of them"
    )
    build.add_argument("--format", choices=FORMATS, help="layout of data without a name")
    build.add_argument("--split", metavar="NAME", help="which judgements: qrels/NAME.tsv (default: test)")
    _add_build_flags(build)
    export_flags = action("export", "write a collection, or its first queries, for other tools")
    add_source(export_flags)
    export_flags.add_argument("--format", choices=EXPORT_FORMATS, default="trec")
    export_flags.add_argument("--queries", type=positive, metavar="N", help="the first N only: subsets of one file are nested")
    export_flags.add_argument("--out", type=local_path, required=True, metavar="FOLDER|FILE", help="a folder; for jsonl a file")
    examples(parser, "steadyscore data list", "steadyscore data check passages")


def _add_get_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="a name of `data list` or `list models`")
    _add_build_flags(parser)


def _add_build_flags(parser: argparse.ArgumentParser) -> None:
    """What `get` and `build` share."""
    parser.add_argument("--out", type=local_path, metavar="FILE", help=".jsonl or .jsonl.gz (default: the cache, under NAME)")
    parser.add_argument("--first-stage", metavar="STAGE", help="bm25, bm25:msmarco, dense:MODEL, splade:MODEL or run:FILE")
    parser.add_argument("--k1", type=float, help="BM25 term saturation (default 0.9; bm25:msmarco 0.82)")
    parser.add_argument("--b", type=float, help="BM25 length normalisation (default 0.4; bm25:msmarco 0.68)")
    parser.add_argument("--depth", type=positive, default=100, metavar="N", help="candidates per query (default: 100)")
    parser.add_argument("--chars", type=positive, metavar="N", help="characters of a candidate shown to the model")
    parser.add_argument("--verdicts", type=local_path, metavar="FILE", help="claim labels of SciFact or Climate-FEVER")
    parser.add_argument("--apart-from", metavar="NAME|FILE", help="leave out queries whose text is in this collection")
    parser.add_argument("--sample", type=positive, metavar="N", help="a seeded sample; smaller ones are nested in larger ones")
    parser.add_argument("--seed", type=int, default=42, metavar="S", help="seed of the sample (default: 42)")
    parser.add_argument(
        "--parts", type=_parse_parts, metavar="P=N,..", help="cut into disjoint files, as train=29500,held-out=500"
    )


def run(args: argparse.Namespace) -> int:
    actions = {"list": _list, "get": _make, "check": _check, "show": _show, "build": _make, "export": _export}
    return actions[args.action](args)


def _list(args: argparse.Namespace) -> int:
    rows = [_row(name) for name in names()]
    print_rows(args, rows, [*rows[0]], [[cell_text(value) for value in row.values()] for row in rows])
    if not args.json:
        note("Legal-A and Legal-B of the paper are private; your own collection takes their place: steadyscore data check FILE")
    return 0


def _row(name: str) -> dict[str, object]:
    if (path := location(name)) is None:
        known = CATALOGUE[name]
        said: tuple[Any, ...] = (known.task, known.queries, known.role, False, how_to_get(known))
    else:
        collection = open_collection(path).collection
        role = (collection.details or {}).get("role", "evaluation")
        how = "ships with steadyscore" if EMBEDDED in path.parents else f"is in {path}"
        said = (collection.task, collection.queries, role, True, how)
    return dict(zip(("name", "task", "queries", "role", "available", "how"), (name, *said), strict=True))


def _make(args: argparse.Namespace) -> int:
    """`get` and `build`: a whole file first, then its parts, the main one last: what exists is complete."""
    if args.action == "get" and args.name in EMBEDDED_MODELS:
        return _get_model(args)
    if args.action == "get" and args.out is None and (path := location(args.name)):
        note(f"{args.name} is here already; remove the file to get it again")
        return _print_written({path: open_collection(path).collection.queries or 0}, args)
    known = _catalogue_row(args)
    if args.out is None and not is_plain_name(args.name):
        raise UsageError(f"{args.name!r} cannot be the name of a file in the cache: give {PLAIN_RULE}, or say where with --out.")
    spec = args.first_stage or (known.first_stage or "bm25" if (args.k1, args.b) != (None, None) else None)
    stage = parse_first_stage(spec, k1=args.k1, b=args.b) if spec else None
    sizes = args.parts or known.parts
    request = BuildRequest(known, stage, args.depth, args.seed, args.verdicts, args.apart_from, args.chars, SPARE if sizes else 0)
    report = Report()
    out = args.out or cache_folder() / f"{args.name}.jsonl.gz"
    collection, instances = from_folder(args.folder, request, report) if args.action == "build" else from_hub(request, report)
    instances = bar(f"{args.action} {args.name}")(instances, known.sample or known.limit)
    written = _write_parts(out, collection, instances, sizes) if sizes else {out: write(out, collection, instances)}
    for what, count in [*report.dropped.items(), *report.notes.items()]:
        note(f"{count:,} {what}")
    if mistake := count_mistake(known.name, sum(written.values()), {"dropped": report.dropped}):
        note(mistake)
    return _print_written(written, args, dropped=report.dropped, notes=report.notes)


def _get_model(args: argparse.Namespace) -> int:
    refuse(*mode_mistakes(f"{args.name} is a model", _add_get_flags, args, ("name", "json")))
    if not is_present(EMBEDDED_MODELS[args.name]):
        check_installed(f"Fetching {args.name}", *CONVERSION)
        note(f"Fetching {args.name} and keeping it as safetensors; later loads take seconds.")
    folder = model_path(args.name)
    print_json({"model": args.name, "folder": str(folder)}) if args.json else print(folder)
    return 0


def _print_written(written: dict[Path, int], args: argparse.Namespace, *, unit: str = "queries", **more: Any) -> int:
    """What was written, on stdout."""
    if args.json:
        print_json({"files": [{"file": str(file), unit: count} for file, count in written.items()], **more})
    else:
        for file, count in written.items():
            print(f"{file}: {count:,} {unit}")
    return 0


def _catalogue_row(args: argparse.Namespace) -> Known:
    """The row to build by: the catalogue's, changed by what was typed, or one for data without a name."""
    own = getattr(args, "format", None)
    if args.action == "get" and args.name not in CATALOGUE:
        path_of(args.name)  # tells what the name may have meant
    if args.name not in CATALOGUE and own is None:
        raise UsageError(f"{args.name} is not a name of `steadyscore data list`; say what the files are with --format.")
    known = own_files(args.name, own) if own else CATALOGUE[args.name]
    typed = {"split": getattr(args, "split", None), "sample": args.sample}
    return replace(known, **{key: value for key, value in typed.items() if value is not None})


def _write_parts(out: Path, collection: Collection, instances: Iterable[Instance], sizes: dict[str, int]) -> dict[Path, int]:
    """One whole file on the side, then every part of it."""
    suffix = ".jsonl.gz" if out.name.endswith(".gz") else ".jsonl"
    whole, stem = scratch_beside(out, suffix), out.name.removesuffix(suffix)
    try:
        write(whole, collection, instances)
        first = next(iter(sizes))
        files = {part: out if part == first else out.with_name(f"{stem}.{part}{suffix}") for part in sizes}
        written = {}
        for part in reversed(sizes):
            details = dict(collection.details or {})
            dropped = details["dropped"] = Counter(details.get("dropped"))
            chosen = (each for of, each in split_parts(read_instances(whole), sizes, dropped) if of == part)
            written[files[part]] = write(files[part], replace(collection, details={**details, "part": part}), chosen)
        return dict(reversed(written.items()))
    finally:
        whole.unlink(missing_ok=True)


def _check(args: argparse.Namespace) -> int:
    path = path_of(args.source)
    mistakes = check(path, args.columns)
    if not mistakes:
        source = open_collection(path, args.columns)
        collection, instances = source.collection, source.instances
        queries = collection.queries if collection.queries is not None else sum(1 for _ in instances())
        verdicts = sum(1 for instance in instances() if instance.verdict) if collection.name in CATALOGUE else 0
        mistake = count_mistake(collection.name, queries, collection.details or {}, verdicts)
        mistakes = [f"{path}: {mistake}"] if mistake else []
        if args.apart_from:
            mistakes += shared_mistakes(str(path), instances, [args.apart_from])
    if args.json:
        print_json({"file": str(path), "mistakes": mistakes})
        return 1 if mistakes else 0
    if mistakes:
        raise InputError(mistakes)
    print(f"{path}: {queries:,} queries, no mistake")
    return 0


def _show(args: argparse.Namespace) -> int:
    source = open_collection(args.source, args.columns)
    collection, instances = source.collection, source.instances
    made = collection_card(collection, bar(f"card of {collection.name}")(instances(), collection.queries))
    said = [(key.replace("_", " "), _show_value(value)) for key, value in made.items() if value not in (None, {}, [])]
    print_rows(args, made, ["card", collection.name], said)
    return 0


def _export(args: argparse.Namespace) -> int:
    source = open_collection(args.source, args.columns)
    collection, instances = source.collection, source.instances(reserve=args.format == "jsonl")
    exported = bar(f"export of {collection.name}")(islice(instances, args.queries), args.queries or collection.queries)
    if args.format == "jsonl":
        return _print_written({args.out: write(args.out, collection, exported)}, args)
    written = export(args.out, args.format, exported, collection.name)
    return _print_written({args.out / file: count for file, count in written.items()}, args, unit="lines")


def _parse_parts(text: str) -> dict[str, int]:
    try:
        sizes = {part: int(size) for part, size in (pair.split("=") for pair in text.split(","))}
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text} is not of the form train=29500,held-out=500") from None
    if not all(is_plain_name(part) and size > 0 for part, size in sizes.items()):
        raise argparse.ArgumentTypeError(f"every part needs at least one query and a name: {PLAIN_RULE}")
    return sizes


def _show_value(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}: {_show_value(each)}" for key, each in value.items())
    if isinstance(value, list):
        return "; ".join(map(_show_value, value))
    return f"{value:.3f}" if isinstance(value, float) else str(value)
