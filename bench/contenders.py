"""Ways of scoring pools of passages, each opened in a process of its own by `turns.py`.

SmolLM2-135M-Instruct (or a small model of the same class with random weights) on embedded passages, windows where there are
windows (prompt `compact`):

    ours             this package: causal windows, isolated ones, a set; and, one candidate a prompt, what `rerankers` reads
    transformers     one pass per causal window, logits of the whole vocabulary at every position
    nested prefixes  one pass per slot, over everything before it, as the paper's released evaluation reads grades
    vLLM             the same causal windows through this package's engine `vllm:`, float32 on the processor
    llama.cpp        the file that the weights come from, four bits, one pass per causal window and one row of logits (xllamacpp)
    rerankers        the library's MxBaiV2Ranker on the same weights: one candidate a prompt, a logit of `1` less one of `0`
    rank-llm         the library's RankListwiseOSLLM on the same weights, by vLLM: it writes an order of the pool
    cross-encoder    a sentence-transformers CrossEncoder of 22M and of 110M with random weights

The last two kinds say nothing that could be compared with ours: their rows are times only. What is not installed says so.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from importlib.metadata import distribution
from pathlib import Path
from typing import Any, NamedTuple, cast, get_args
from unittest.mock import MagicMock

import numpy as np

from steadyscore.collection import open_collection
from steadyscore.models.embedded import EMBEDDED, model_path
from steadyscore.terms import Candidate, Instance, Prompt, PromptStyle, Window
from steadyscore.window import readout
from steadyscore.window.presentation import permutations, windows

EMBEDDED_MODEL, TINY_MODEL = "smollm2-135m", "tiny"
TINY_SHAPE = {
    "hidden_size": 192,
    "intermediate_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 3,
    "num_key_value_heads": 1,
}
"""A thirtieth of the layers' weights of the embedded model, same tokenizer, same size of a head."""
TINY_CONTEXT = 32768


class Contender(NamedTuple):
    way: str
    precision: str
    layout: str = ""
    """What it reads; contenders of one layout must give the same scores."""
    time_only: str = ""
    """Why its scores are compared with nobody's."""

    @property
    def name(self) -> str:
        return ", ".join(filter(None, self[:3]))


BASE = Contender("transformers", "float32", "causal")
OURS = tuple(
    Contender("ours", precision, layout) for precision in ("float32", "bfloat16") for layout in ("causal", "isolated", "set")
)
CONTENDERS = (
    Contender("product of matrices", "float32"),
    Contender("product of matrices by oneDNN", "float32"),
    Contender("product of matrices", "bfloat16"),
    BASE,
    Contender("transformers", "bfloat16", "causal"),
    Contender("nested prefixes", "float32", "causal"),
    *OURS,
    Contender("vLLM", "float32", "causal"),
    Contender("llama.cpp", "Q4_1", "causal"),
    Contender("rerankers", "float32", "pointwise"),
    Contender("ours", "float32", "pointwise"),
    Contender("rank-llm", "bfloat16", time_only="writes an order"),
    Contender("cross-encoder 22M", "float32", time_only="random weights"),
    Contender("cross-encoder 110M", "float32", time_only="random weights"),
)


class Case(NamedTuple):
    """What is read in one go."""

    queries: int = 1
    pool: int = 20
    width: int = 10
    """Candidates per window; a set is the whole pool."""
    orders: int = 1
    chars: int = 240
    """Of every candidate."""


class Answer(NamedTuple):
    """What one reading of a case gave."""

    scores: np.ndarray
    """(queries, orders, n), columns as in the pools; NaN where none was read."""
    tokens: int = 0
    """That went through the model; 0 where not counted."""
    work: float = 0.0
    """Floating-point operations of the model's matrices; 0 where not counted."""


class Reader:
    """Reads cases; what it prepares is not timed."""

    def prepare(self, case: Case) -> np.ndarray | None:
        """The scores that the reading must give, where another way of reading tells them."""
        return None

    def __call__(self, case: Case) -> Answer:
        raise NotImplementedError


def shown(case: Case) -> list[tuple[Instance, np.ndarray]]:
    """The pools of a case, each with its (orders, n) orders. Every text has the same number of characters."""
    instances = list(open_collection("passages").instances())
    texts = list(dict.fromkeys(candidate.text for instance in instances for candidate in instance.pool))
    pools = []
    for number in range(case.queries):
        starts = [(number * case.pool + i) % len(texts) for i in range(case.pool)]
        pool = tuple(Candidate(f"{i:04}", _text_from(texts, start, case.chars)) for i, start in enumerate(starts))
        instance = Instance(f"bench-{number}", instances[number % len(instances)].query, pool)
        pools.append((instance, permutations(case.pool, case.orders, seed=0, query_id=instance.id)))
    return pools


def _text_from(texts: list[str], start: int, chars: int) -> str:
    text = texts[start]
    while len(text) < chars:
        start = (start + 1) % len(texts)
        text += " " + texts[start]
    return text[:chars]


def ids_of(prompt: Prompt) -> list[int]:
    return [*prompt.prefix, *prompt.body]


class Local(Reader):
    """The model by transformers or through another engine of ours: ours, plain passes, nested prefixes."""

    def __init__(self, contender: Contender, model: str = EMBEDDED_MODEL):
        from steadyscore.engines import EngineOptions, Precision
        from steadyscore.engines.kinds import open_engine

        self.style = cast(PromptStyle, {"causal": "compact"}.get(contender.layout, contender.layout))
        precision = contender.precision if contender.precision in get_args(Precision) else "float32"  # llama.cpp's prompts
        options = EngineOptions(dtype=cast(Precision, precision))
        with tempfile.TemporaryDirectory() as folder:
            address = f"hf:{save_tiny(Path(folder))}" if model == TINY_MODEL else model
            self.engine = open_engine(f"vllm:{address}" if contender.way == "vLLM" else address, options)
        self.way, self.tokens, self.weights = contender.way, 0, 0
        if self.way != "vLLM":
            self.model = self.engine.model
            self.model.base_model.register_forward_hook(self._count, with_kwargs=True)
            self.weights = self.model.num_parameters(exclude_embeddings=True)

    def prepare(self, case: Case) -> np.ndarray | None:
        """The scores of our layout from one plain pass over each window."""
        if self.way != "ours":
            return None
        return self._scores(case, lambda prompt: self.engine.plain_logits(prompt).logits)

    def __call__(self, case: Case) -> Answer:
        ways = {"transformers": self.plain, "nested prefixes": self.nested}
        self.tokens = 0
        scores = ways.get(self.way, self.ours)(case)
        return Answer(scores, self.tokens, 2.0 * self.weights * self.tokens)

    def ours(self, case: Case) -> np.ndarray:
        scorer = self.scorer(case)
        return np.stack([scorer.score_orders(pool, orders, range(len(orders))).scores for pool, orders in shown(case)])

    def plain(self, case: Case) -> np.ndarray:
        def logits(prompt: Prompt) -> np.ndarray:
            return self._logits(ids_of(prompt))[list(prompt.slots)][:, list(prompt.grade_tokens)]

        return self._scores(case, logits)

    def nested(self, case: Case) -> np.ndarray:
        def logits(prompt: Prompt) -> np.ndarray:
            rows = [self._logits(ids_of(prompt)[: slot + 1], logits_to_keep=1)[-1] for slot in prompt.slots]
            return np.stack(rows)[:, list(prompt.grade_tokens)]

        return self._scores(case, logits)

    def scorer(self, case: Case) -> Any:
        from steadyscore.scoring.scorer import Scorer, Settings
        from steadyscore.tasks import PASSAGE_RERANKING

        width = None if self.style == "set" else case.width
        return Scorer(self.engine, PASSAGE_RERANKING, Settings(width, case.chars, prompt=self.style, label_mass=False))

    def prompts(self, case: Case) -> list[tuple[int, int, Window, Prompt]]:
        """Every window with the number of its query and of its order."""
        scorer = self.scorer(case)
        return [
            (query, number, window, cast(Prompt, scorer.prompt(pool, window)))
            for query, (pool, orders) in enumerate(shown(case))
            for number, order in enumerate(orders)
            for window in windows(order, scorer.width or case.pool)
        ]

    def _scores(self, case: Case, logits: Callable[[Prompt], np.ndarray]) -> np.ndarray:
        scores = np.full((case.queries, case.orders, case.pool), np.nan)
        for query, number, window, prompt in self.prompts(case):
            scores[query, number, list(window.candidates)] = readout.score(readout.grade_distribution(logits(prompt)))
        return scores

    def _logits(self, ids: list[int], **options: int) -> np.ndarray:
        import torch

        with torch.inference_mode():
            rows: np.ndarray = self.model(input_ids=torch.tensor([ids]), use_cache=False, **options).logits[0].float().numpy()
        return rows

    def _count(self, module: object, given: object, named: dict[str, Any], out: object) -> None:
        self.tokens += named["input_ids"].numel()


def save_tiny(folder: Path) -> Path:
    """A small model of the embedded one's class with random weights, and the embedded one's tokenizer."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    embedded = model_path(EMBEDDED_MODEL)
    config = AutoConfig.from_pretrained(embedded)
    config.update(TINY_SHAPE | {"max_position_embeddings": TINY_CONTEXT, "head_dim": 64})
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(folder)
    AutoTokenizer.from_pretrained(embedded).save_pretrained(folder)
    return folder


class Llama(Reader):
    """llama.cpp's server in this process, asked for one token behind each window. Windows of a pool share their beginning."""

    def __init__(self, contender: Contender):
        import xllamacpp

        embedded = EMBEDDED[EMBEDDED_MODEL]
        options = xllamacpp.CommonParams()
        options.model.path = str(distribution(embedded.distribution).locate_file(embedded.gguf))
        options.n_ctx, options.n_parallel, options.verbosity, options.cache_ram_mib = 4096, 1, -1, 0
        options.cpuparams.n_threads = options.cpuparams_batch.n_threads = int(os.environ["OMP_NUM_THREADS"])
        self.local, self.server = Local(contender), xllamacpp.Server(options)
        self.known: dict[Case, np.ndarray] = {}

    def prepare(self, case: Case) -> None:
        """Read the scores, of the last slot of each window: all alternatives are written out for that, which takes long."""
        scores = np.full((case.queries, case.orders, case.pool), np.nan)
        for query, number, window, prompt in self.local.prompts(case):
            said = self._ask(prompt, self.local.model.config.vocab_size)
            top = {row["id"]: row["logprob"] for row in said["choices"][0]["logprobs"]["content"][0]["top_logprobs"]}
            logits = np.array([[top[token] for token in prompt.grade_tokens]])
            scores[query, number, window.candidates[-1]] = readout.score(readout.grade_distribution(logits))[0]
        self._forget()
        self.known[case] = scores

    def __call__(self, case: Case) -> Answer:
        for *_, prompt in self.local.prompts(case):
            self._ask(prompt)
        self._forget()
        return Answer(self.known[case])

    def _ask(self, prompt: Prompt, alternatives: int = 0) -> dict[str, Any]:
        asked = {"prompt": ids_of(prompt)[: prompt.slots[-1] + 1], "n_predict": 1, "temperature": 0.0}
        return cast(dict[str, Any], self.server.handle_completions(asked | ({"n_probs": alternatives} if alternatives else {})))

    def _forget(self) -> None:
        """Read another text, so that the next reading finds nothing of these."""
        self.server.handle_completions({"prompt": [1, 2, 3], "n_predict": 1})


class Texts(Reader):
    """What scores the texts of a pool under a query, whatever their order: each pool once."""

    def __init__(self, score: Callable[[str, list[str]], Any]):
        self.score = score

    def __call__(self, case: Case) -> Answer:
        scores = [self.score(pool.query, [candidate.text for candidate in pool.pool]) for pool, _ in shown(case)]
        return Answer(np.array(scores, dtype=float)[:, None, :])


def our_pointwise(contender: Contender) -> Reader:
    from steadyscore.engines import EngineOptions
    from steadyscore.engines.kinds import open_engine

    return Texts(open_engine(f"system:mxbai-rerank-base-v2@{model_path(EMBEDDED_MODEL)}", EngineOptions(dtype="float32")).score)


def rerankers(contender: Contender) -> Reader:
    """The library's reader of causal language models. Its version 0.10 calls a method that tokenizers lost in transformers 5."""
    from rerankers.models.mxbai_v2 import MxBaiV2Ranker

    ranker = MxBaiV2Ranker(str(model_path(EMBEDDED_MODEL)), device="cpu", dtype=contender.precision, verbose=0)
    if not hasattr(ranker.tokenizer, "prepare_for_model"):
        ranker.tokenizer.prepare_for_model = lambda first, second, max_length, **options: {
            "input_ids": [*first, *second][:max_length]
        }

    def score(query: str, texts: list[str]) -> list[float]:
        ranked = {result.document.doc_id: result.score for result in ranker.rank(query, texts).results}
        return [ranked[number] for number in range(len(texts))]

    return Texts(score)


def rank_llm(contender: Contender) -> Reader:
    """The library's listwise reader. Importing it imports LiT5, which needs transformers 4 and is not used here."""
    import vllm  # noqa: F401  (named first, so that a missing one is told)

    for name in ("model", "modeling_t5"):
        sys.modules[f"rank_llm.rerank.listwise.lit5.{name}"] = MagicMock()
    from rank_llm.data import Candidate as Document
    from rank_llm.data import Query, Request
    from rank_llm.rerank.listwise import RankListwiseOSLLM

    ranker = RankListwiseOSLLM(str(model_path(EMBEDDED_MODEL)), device="cpu", variable_passages=True)

    def score(query: str, texts: list[str]) -> list[float]:
        documents = [Document(str(number), 0.0, {"text": text}) for number, text in enumerate(texts)]
        [ranked] = ranker.rerank_batch([Request(Query(query, "bench"), documents)])
        places = {int(document.docid): place for place, document in enumerate(ranked.candidates)}
        return [float(len(texts) - places[number]) for number in range(len(texts))]

    return Texts(score)


def cross_encoder(contender: Contender) -> Reader:
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

    def score(query: str, texts: list[str]) -> Any:
        return model.predict([(query, text) for text in texts], show_progress_bar=False)

    return Texts(score)


class Matrices(Reader):
    """Products of two square matrices: what the processor reaches. In float32 torch asks MKL, which on AMD is not the fastest."""

    def __init__(self, contender: Contender, size: int = 2048, times: int = 8):
        import torch
        from torch.utils.mkldnn import to_mkldnn

        first, second = (torch.randn(size, size).to(getattr(torch, contender.precision)) for _ in range(2))
        self.times, self.work = times, 2.0 * times * size**3
        self.product = first.__matmul__
        self.other = second
        if contender.way.endswith("oneDNN"):
            self.product = to_mkldnn(torch.nn.Linear(size, size, bias=False))
            self.other = second.to_mkldnn()

    def __call__(self, case: Case) -> Answer:
        import torch

        with torch.inference_mode():
            for _ in range(self.times):
                self.product(self.other)
        return Answer(np.array([]), work=self.work)


OPENERS: dict[str, Callable[[Contender], Reader]] = {
    "product of matrices": Matrices,
    "product of matrices by oneDNN": Matrices,
    "llama.cpp": Llama,
    "rerankers": rerankers,
    "rank-llm": rank_llm,
    "cross-encoder 22M": cross_encoder,
    "cross-encoder 110M": cross_encoder,
}


def open_contender(contender: Contender, model: str = EMBEDDED_MODEL) -> Reader:
    """One that has read something already."""
    if contender.layout == "pointwise" and contender.way == "ours":
        reader = our_pointwise(contender)
    elif contender.way in OPENERS:
        reader = OPENERS[contender.way](contender)
    else:
        reader = Local(contender, model)
    small = Case(pool=2, width=2)
    reader.prepare(small)
    reader(small)
    return reader
