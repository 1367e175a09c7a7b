"""Scoring pools of passages: ours beside other ways of reading the same windows with the same weights. One run, one table.

    python bench/bench_scoring.py [--pools 20] [--orders 1] [--rounds 2] [--threads 1] [--only NAME ...] [--json FILE]

Each contender has a process of its own, and they take turns, so that other work on the machine meets all of them alike.
SmolLM2-135M-Instruct on embedded passages of 300 characters, windows of ten where there are windows (prompt `compact`):

    ours             this package: causal windows, isolated ones, a set
    transformers     one pass per causal window, logits of the whole vocabulary at every position
    nested prefixes  one pass per slot, over everything before it, as the paper's released evaluation reads grades
    llama.cpp        the file that the weights come from, four bits, one pass per causal window and one row of logits (xllamacpp)
    cross-encoder    a sentence-transformers CrossEncoder of 22M and of 110M, random weights: for its time only

What reads the same windows must give the same scores, or the run ends with exit code 1 and no table. Ours is compared with a
plain pass over each window too; llama.cpp at the last slot of each. Seconds are medians over the rounds; the share of the peak
is what the model's matrices take, of what a product of two matrices reaches in the same run in the same precision, on one
thread. What is not installed is a row that says so. With --orders every pool is read in so many orders, as an audit reads it, a
cross-encoder's once. Several --pools add how processor seconds grow: the exponent of the pool.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from importlib.metadata import distribution
from pathlib import Path
from typing import Any, NamedTuple, cast, get_args

import numpy as np

from steadyscore.collection import open_collection
from steadyscore.models.embedded import EMBEDDED
from steadyscore.terms import Instance, Prompt, PromptStyle, Window
from steadyscore.window import readout
from steadyscore.window.presentation import permutations, windows

CHARS, WIDTH = 300, 10
TOLERANCES = {"float32": 1e-4, "bfloat16": 5e-2, "Q4_1": 5e-2}
"""Largest difference in score from a plain pass in float32."""


class Contender(NamedTuple):
    way: str
    precision: str
    layout: str = ""

    @property
    def name(self) -> str:
        return ", ".join(filter(None, self))


BASE = Contender("transformers", "float32", "causal")
CONTENDERS = (
    Contender("product of matrices", "float32"),
    Contender("product of matrices", "bfloat16"),
    BASE,
    Contender("transformers", "bfloat16", "causal"),
    Contender("nested prefixes", "float32", "causal"),
    *(Contender("ours", precision, layout) for precision in ("float32", "bfloat16") for layout in ("causal", "isolated", "set")),
    Contender("llama.cpp", "Q4_1", "causal"),
    Contender("cross-encoder 22M", "float32"),
    Contender("cross-encoder 110M", "float32"),
)


class Answer(NamedTuple):
    """What one reading of a pool gave."""

    scores: np.ndarray
    """(orders, n), columns as in the pool; NaN where none was read."""
    work: float
    """Floating-point operations of the model's matrices; 0 where not counted."""


Read = Callable[[Instance, np.ndarray], Answer]
"""Of a pool and the orders, (orders, n), in which it is shown."""


def pool_of(size: int) -> Instance:
    """The first `size` distinct texts of the embedded passages, under the first query."""
    instances = list(open_collection("passages").instances())
    texts = {candidate.text[:CHARS]: candidate for instance in instances for candidate in instance.pool}
    return Instance("bench", instances[0].query, tuple(list(texts.values())[:size]))


# -- ways to read a pool; each is opened in its own process


class Local:
    """The model by transformers: ours, plain passes, nested prefixes."""

    def __init__(self, contender: Contender):
        from steadyscore.engines import EngineOptions, Precision
        from steadyscore.engines.kinds import open_engine
        from steadyscore.scoring.scorer import Scorer, Settings
        from steadyscore.tasks import PASSAGE_RERANKING

        style = cast(PromptStyle, {"causal": "compact"}.get(contender.layout, contender.layout))
        precision = "float32" if contender.precision not in get_args(Precision) else contender.precision  # llama.cpp's prompts
        self.engine = open_engine("smollm2-135m", EngineOptions(dtype=cast(Precision, precision)))
        settings = Settings(width=None if style == "set" else WIDTH, chars=CHARS, prompt=style, label_mass=False)
        self.scorer = Scorer(self.engine, PASSAGE_RERANKING, settings)
        self.model, self.way, self.tokens = self.engine.model, contender.way, 0
        self.model.base_model.register_forward_hook(self._count, with_kwargs=True)
        self.weights = self.model.num_parameters(exclude_embeddings=True)

    def __call__(self, pool: Instance, orders: np.ndarray) -> Answer:
        ways = {"ours": self.ours, "transformers": self.plain, "nested prefixes": self.nested}
        self.tokens = 0
        return Answer(ways[self.way](pool, orders), 2.0 * self.weights * self.tokens)

    def ours(self, pool: Instance, orders: np.ndarray) -> np.ndarray:
        scores = np.empty(orders.shape)
        by_id = sorted(range(len(pool.pool)), key=lambda i: pool.pool[i].id)
        scores[:, by_id] = self.scorer.score_orders(pool, orders, range(len(orders))).scores
        return scores

    def expected(self, pool: Instance, orders: np.ndarray) -> np.ndarray:
        """The scores of our layout from one plain pass over each window."""
        return self._scores(pool, orders, lambda prompt: self.engine.plain_logits(prompt).logits)

    def plain(self, pool: Instance, orders: np.ndarray) -> np.ndarray:
        def logits(prompt: Prompt) -> np.ndarray:
            return self._logits(ids_of(prompt))[list(prompt.slots)][:, list(prompt.grade_tokens)]

        return self._scores(pool, orders, logits)

    def nested(self, pool: Instance, orders: np.ndarray) -> np.ndarray:
        def logits(prompt: Prompt) -> np.ndarray:
            rows = [self._logits(ids_of(prompt)[: slot + 1], logits_to_keep=1)[-1] for slot in prompt.slots]
            return np.stack(rows)[:, list(prompt.grade_tokens)]

        return self._scores(pool, orders, logits)

    def _logits(self, ids: list[int], **options: int) -> np.ndarray:
        import torch

        with torch.inference_mode():
            rows: np.ndarray = self.model(input_ids=torch.tensor([ids]), use_cache=False, **options).logits[0].float().numpy()
        return rows

    def _scores(self, pool: Instance, orders: np.ndarray, logits: Callable[[Prompt], np.ndarray]) -> np.ndarray:
        scores = np.full(orders.shape, np.nan)
        for number, window in self.windows(orders):
            prompt = cast(Prompt, self.scorer.prompt(pool, window))
            scores[number, list(window.candidates)] = readout.score(readout.grade_distribution(logits(prompt)))
        return scores

    def windows(self, orders: np.ndarray) -> list[tuple[int, Window]]:
        """Each with the number of its order."""
        width = self.scorer.width or orders.shape[1]
        return [(number, window) for number, order in enumerate(orders) for window in windows(order, width)]

    def _count(self, module: object, given: object, named: dict[str, Any], out: object) -> None:
        self.tokens += named["input_ids"].numel()


def ids_of(prompt: Prompt) -> list[int]:
    return [*prompt.prefix, *prompt.body]


def llama(contender: Contender) -> Read:
    """llama.cpp's server in this process, asked for one token behind each window. Windows of a pool share their beginning."""
    import xllamacpp

    embedded = EMBEDDED["smollm2-135m"]
    options = xllamacpp.CommonParams()
    options.model.path = str(distribution(embedded.distribution).locate_file(embedded.gguf))
    options.n_ctx, options.n_parallel, options.verbosity, options.cache_ram_mib = 4096, 1, -1, 0
    options.cpuparams.n_threads = options.cpuparams_batch.n_threads = int(os.environ["OMP_NUM_THREADS"])
    prompts, server = Local(contender), xllamacpp.Server(options)
    everything = prompts.model.config.vocab_size

    def ask(ids: list[int], alternatives: int = 0) -> dict[str, Any]:
        asked = {"prompt": ids, "n_predict": 1, "temperature": 0.0} | ({"n_probs": alternatives} if alternatives else {})
        return cast(dict[str, Any], server.handle_completions(asked))

    known: dict[int, np.ndarray] = {}

    def read(pool: Instance, orders: np.ndarray) -> Answer:
        is_new, size = len(pool.pool) not in known, len(pool.pool)  # grades are asked for in the warm-up, which is not timed
        scores = known.setdefault(size, np.full(orders.shape, np.nan))
        for number, window in prompts.windows(orders):
            prompt = cast(Prompt, prompts.scorer.prompt(pool, window))
            said = ask(ids_of(prompt)[: prompt.slots[-1] + 1], everything if is_new else 0)
            if is_new:
                top = {row["id"]: row["logprob"] for row in said["choices"][0]["logprobs"]["content"][0]["top_logprobs"]}
                logits = np.array([[top[token] for token in prompt.grade_tokens]])
                scores[number, window.candidates[-1]] = readout.score(readout.grade_distribution(logits))[0]
        ask([1, 2, 3])  # another text, so that the next reading finds nothing of these
        return Answer(scores, 0.0)

    return read


def cross_encoder(contender: Contender) -> Read:
    """BERT of six layers of 384, or of twelve of 768, with a vocabulary learnt from the embedded passages."""
    from sentence_transformers import CrossEncoder
    from tokenizers import BertWordPieceTokenizer
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

    layers, hidden = (6, 384) if contender.way.endswith(" 22M") else (12, 768)
    words = BertWordPieceTokenizer()
    words.train_from_iterator([c.text for i in open_collection("passages").instances() for c in i.pool], show_progress=False)
    with tempfile.TemporaryDirectory() as folder:
        words.save_model(folder)
        BertTokenizerFast(vocab=str(Path(folder, "vocab.txt"))).save_pretrained(folder)
        config = BertConfig(
            num_hidden_layers=layers, hidden_size=hidden, num_attention_heads=12, intermediate_size=4 * hidden, num_labels=1
        )
        BertForSequenceClassification(config).save_pretrained(folder)
        model = CrossEncoder(folder, device="cpu")

    def read(pool: Instance, orders: np.ndarray) -> Answer:
        pairs = [(pool.query, candidate.text[:CHARS]) for candidate in pool.pool]
        return Answer(np.asarray(model.predict(pairs, show_progress_bar=False), dtype=float), 0.0)

    return read


def matrices(contender: Contender) -> Read:
    import torch

    size, times = 2048, 8
    a, b = (torch.randn(size, size).to(getattr(torch, contender.precision)) for _ in range(2))

    def read(pool: Instance, orders: np.ndarray) -> Answer:
        for _ in range(times):
            a @ b
        return Answer(np.array([]), 2.0 * times * size**3)

    return read


def serve(contender: Contender, sizes: Iterable[int], count: int) -> None:
    """Read the pool whose size is on standard input, once per line, and say what it took."""
    openers: dict[str, Callable[[Contender], Read]] = {"product": matrices, "llama.cpp": llama, "cross-encoder": cross_encoder}
    read = openers.get(contender.way.split()[0], Local)(contender)
    shown = {size: (pool_of(size), permutations(size, count, seed=0, query_id="bench")) for size in sizes}
    first = {2: (pool_of(2), np.array([[0, 1]]))}  # warm; a set's examination
    for pool, orders in (shown if contender.way == "llama.cpp" else first).values():
        read(pool, orders)
    is_ours = isinstance(read, Local) and contender.way == "ours"
    expected = {size: read.expected(*both).tolist() for size, both in shown.items()} if is_ours else {}
    print(json.dumps(expected), flush=True)
    for line in sys.stdin:
        wall, processor = time.perf_counter(), time.process_time()
        answer = read(*shown[int(line)])
        took = {"seconds": time.perf_counter() - wall, "processor": time.process_time() - processor}
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps(took | {"scores": answer.scores.tolist(), "work": answer.work, "peak_mb": memory}), flush=True)


# -- the run


def start(contender: Contender, args: argparse.Namespace) -> subprocess.Popen[str]:
    own = {"OMP_NUM_THREADS": str(args.threads), "OMP_WAIT_POLICY": "PASSIVE", "TOKENIZERS_PARALLELISM": "false"}
    command = [sys.executable, __file__, "--own", contender.name, "--orders", str(args.orders), "--pools", *map(str, args.pools)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, text=True, env=os.environ | own, **pipes)  # type: ignore[call-overload, no-any-return]


def run(contenders: list[Contender], args: argparse.Namespace) -> list[dict[str, Any]]:
    """A row per contender and pool; where it could not be opened, a row that says why."""
    processes = {contender: start(contender, args) for contender in contenders}
    rows: dict[tuple[Contender, int], dict[str, Any]] = {}
    try:
        for contender, process in processes.items():
            if not (said := process.stdout.readline()):
                rows[contender, 0] = {"reason": (process.stderr.read().strip().splitlines() or ["ended without a word"])[-1]}
                continue
            expected = json.loads(said)
            rows |= {(contender, size): {"expected": expected.get(str(size)), "answers": []} for size in args.pools}
        for _ in range(args.rounds):
            for (contender, size), row in rows.items():
                if "reason" not in row:
                    print(size, file=processes[contender].stdin, flush=True)
                    row["answers"].append(json.loads(processes[contender].stdout.readline()))
    finally:
        for process in processes.values():
            process.kill()
            process.communicate()
    check(rows)
    return [contender._asdict() | {"pool": size} | row for (contender, size), row in rows.items()]


def check(rows: dict[tuple[Contender, int], dict[str, Any]]) -> None:
    """Put the largest difference in score into each row; end the run where one is beyond what its precision explains."""
    references: dict[tuple[str, int], np.ndarray] = {}
    for (contender, size), row in rows.items():
        if not contender.layout or "reason" in row:
            continue
        plain = row.pop("expected") or row["answers"][0]["scores"]
        reference = references.setdefault((contender.layout, size), np.array(plain))
        scores = np.array([answer["scores"] for answer in row["answers"]])
        row["difference"] = float(np.nanmax(np.abs(scores - reference)))
        if not row["difference"] <= TOLERANCES[contender.precision]:
            raise SystemExit(f"{contender.name} scores {size} candidates otherwise, by {row['difference']:.2g}: not compared")


def table(rows: list[dict[str, Any]]) -> str:
    def median(row: dict[str, Any], name: str) -> float:
        return float(np.median([answer[name] for answer in row["answers"]]))

    def pace(row: dict[str, Any]) -> float:
        return median(row, "work") / median(row, "processor")

    done = [row for row in rows if "reason" not in row]
    products = {row["precision"]: pace(row) for row in done if row["way"] == "product of matrices"}
    base = {row["pool"]: median(row, "processor") for row in done if Contender(*list(row.values())[:3]) == BASE}
    lines = [
        "| pool | | precision | seconds | processor | as fast | of the peak | memory, MB | differs by |",
        "|---:|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        title = f"{row['way']}, {row['layout']}" if row["layout"] else row["way"]
        if "reason" in row:
            lines.append(f"| | {title} | {row['precision']} | {row['reason']} | | | | | |")
        elif row["way"] != "product of matrices":
            processor = median(row, "processor")
            speed = f"{base[row['pool']] / processor:.2f}x" if base else ""
            share = f"{pace(row) / products[row['precision']]:.0%}" if pace(row) and row["precision"] in products else ""
            cells = [f"{median(row, 'seconds'):.2f}", f"{processor:.2f}", speed, share, f"{median(row, 'peak_mb'):,.0f}"]
            cells.append(f"{row['difference']:.1e}" if "difference" in row else "")
            lines.append(f"| {row['pool']} | {title} | {row['precision']} | {' | '.join(cells)} |")
    lines += ["", *(f"A product of matrices in {name}: {pace / 1e9:.0f} GFLOP per second." for name, pace in products.items())]
    by_name: dict[str, list[dict[str, Any]]] = {}
    for row in done:
        by_name.setdefault(", ".join(filter(None, list(row.values())[:3])), []).append(row)
    for name, same in by_name.items():
        if len(same) > 1 and not name.startswith("product"):
            slope = np.polyfit(np.log([r["pool"] for r in same]), np.log([median(r, "processor") for r in same]), 1)[0]
            lines.append(f"- {name}: processor seconds grow with the pool to the power of {slope:.2f}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = {contender.name: contender for contender in CONTENDERS}
    parser.add_argument("--pools", type=int, nargs="+", default=[20])
    parser.add_argument("--orders", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", nargs="+", default=[""], metavar="NAME", help=f"those whose name begins so: {'; '.join(names)}")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--own", choices=names, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.own:
        return serve(names[args.own], args.pools, args.orders)
    load, chosen = os.getloadavg()[0], [c for c in CONTENDERS if c.name.startswith(tuple(args.only))]
    rows = run(chosen, args)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=2) + "\n")
    print(table(rows))
    said = f"threads {args.threads}, orders {args.orders}, rounds {args.rounds}"
    print(f"Load {load:.1f} at the start, {os.getloadavg()[0]:.1f} at the end; {said}.")


if __name__ == "__main__":
    main()
