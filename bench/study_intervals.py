"""Does a 95 % interval hold the true mean in 95 of 100 studies? `python bench/study_intervals.py [measures.parquet ...]`.

A population is the per-query values of one measure; its mean is the truth. A study draws n queries from it with replacement
and makes an interval by each method. Populations are made with the package's simulator; those of stored runs are added by
naming the `measures.parquet` that `steadyscore audit` wrote. Prints the tables of docs/intervals.md.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy.stats import norm
from scipy.stats import t as student

from steadyscore.measures.intervals import Interval, mean_interval
from steadyscore.measures.registry import MEASURES, Stack
from steadyscore.measures.retained_sets import retained
from steadyscore.measures.threshold import fit_cutoff
from steadyscore.studies.validate import random_orders, simulate

NAMES = ("ndcg@10", "ndcg@1", "order_spread@10", "tau_psi", "overlap", "retained_f1", "pair_flip", "gold_crossing")
SIZES = (10, 20, 50, 200)
QUERIES, PERMUTATIONS, WIDTH = 6000, 6, 10
DRAWS, BLOCK = 2000, 100  # the studies of a block share their draws; the next block draws anew
SEED = 4401


class Scorer(NamedTuple):
    content: float
    """How much of a score is the candidate's own."""
    slot: float
    companions: float
    noise: float


SCORERS = {
    "steady": Scorer(1.0, 0.01, 0.02, 0.01),
    "unsteady": Scorer(1.0, 0.08, 0.15, 0.03),
    "off the shelf": Scorer(0.1, 0.10, 0.10, 0.05),
}


# ---- populations ----


def pools(queries: int, candidates: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """(Q, n) what the candidates are worth to a scorer, and their grades 0 to 3, which follow it loosely."""
    worth = rng.beta(1.5, 3.0, (queries, candidates))
    return worth, np.digitize(worth + rng.normal(0, 0.15, worth.shape), [0.5, 0.65, 0.8]).astype(float)


def score(worth: np.ndarray, scorer: Scorer, rng: np.random.Generator) -> np.ndarray:
    """(Q, 1 + M, n) scores in first-stage order and under M permutations; how far order moves a query varies by query."""
    found, n = [], worth.shape[1]
    for base in worth:
        size = rng.lognormal(0, 0.7)
        orders = np.vstack([np.arange(n), random_orders(n, PERMUTATIONS, rng)])
        slot = size * scorer.slot * np.linspace(1, -1, WIDTH)
        companions = size * scorer.companions * rng.standard_normal((n, n))
        simulated = simulate(
            scorer.content * base, orders, WIDTH, slot=slot, influence=companions, noise=size * scorer.noise, rng=rng
        )
        found.append(simulated.scores)
    return np.array(found)


def stack(scores: np.ndarray, grades: np.ndarray, cutoff: float) -> Stack:
    kept = retained(scores[:, 1:], cutoff)
    return Stack(scores[:, 1:], scores[:, 0], grades, grades, orders=None, retained=kept)


def per_query(scores: np.ndarray, grades: np.ndarray, cutoff: float, names: tuple[str, ...] = NAMES) -> dict[str, np.ndarray]:
    """Measure -> (Q,)."""
    parts = [slice(start, start + 500) for start in range(0, len(scores), 500)]
    stacks = [stack(scores[part], grades[part], cutoff) for part in parts]
    return {name: np.concatenate([MEASURES[name].value(s) for s in stacks]) for name in names}  # type: ignore[misc]


def simulated_populations(rng: np.random.Generator) -> Iterator[tuple[str, str, np.ndarray]]:
    """(scorer, measure, values): three scorers on the same pools of 20, the differences of two, one on pools of 4."""
    for candidates, scorers in ((20, SCORERS), (4, {"unsteady, 4 responses": SCORERS["unsteady"]})):
        worth, grades = pools(QUERIES, candidates, rng)
        values = {}
        for name, scorer in scorers.items():
            scores, half = score(worth, scorer, rng), QUERIES // 2
            cutoff = fit_cutoff(list(scores[:half, 0]), list(grades[:half]))
            values[name] = per_query(scores, grades, cutoff)
            yield from ((name, measure, found) for measure, found in values[name].items())
        if "steady" in values:
            for measure in NAMES:
                yield "unsteady - steady", measure, values["unsteady"][measure] - values["steady"][measure]


def stored_populations(path: str) -> Iterator[tuple[str, str, np.ndarray]]:
    import pyarrow.parquet as parquet

    values: dict[tuple[str, str], list[float]] = {}
    for row in parquet.read_table(path).to_pylist():
        values.setdefault((f"{row['variant']} on {row['collection']}", row["measure"]), []).append(row["value"])
    yield from ((run, measure, np.array(found)) for (run, measure), found in values.items() if measure in NAMES)


# ---- methods: bounds of many studies at once ----


def bootstrap_weights(n: int, rng: np.random.Generator) -> np.ndarray:
    """(DRAWS, n) how often each of n queries is drawn, over n."""
    drawn = rng.integers(0, n, (DRAWS, n)) + n * np.arange(DRAWS)[:, None]
    return np.bincount(drawn.ravel(), minlength=DRAWS * n).reshape(DRAWS, n) / n


def quantiles(rows: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Of sorted rows (S, D), each row's quantile at its own share, (S,)."""
    place = np.broadcast_to(at, len(rows)) * (rows.shape[1] - 1)
    below = np.floor(place).astype(int)
    above, row = np.minimum(below + 1, rows.shape[1] - 1), np.arange(len(rows))
    return rows[row, below] + (place - below) * (rows[row, above] - rows[row, below])


def bounds(values: np.ndarray, rng: np.random.Generator) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Method -> (low, high), each (S,), from the values (S, n) of S studies."""
    n = values.shape[1]
    weights = bootstrap_weights(n, rng)
    mean, deviation = values.mean(axis=1), values - values.mean(axis=1, keepdims=True)
    error = values.std(axis=1, ddof=1) / np.sqrt(n)
    draws = deviation @ weights.T  # (S, D), around zero
    t, z = student.ppf(0.975, n - 1), norm.ppf(0.975)
    wide = t * np.sqrt(n / (n - 1))
    ordered = np.sort(draws, axis=1)
    share = ((draws < -1e-12).mean(axis=1) + (draws <= 1e-12).mean(axis=1)) / 2
    bias = norm.ppf(np.clip(share, 1 / DRAWS, 1 - 1 / DRAWS))
    flat = error < 1e-12
    skewness = np.where(flat, 0, (deviation**3).sum(axis=1) / np.where(flat, 1, 6 * (deviation**2).sum(axis=1) ** 1.5))

    def accelerated(end: float) -> np.ndarray:
        moved = bias + end
        return mean + quantiles(ordered, norm.cdf(bias + moved / np.maximum(1 - skewness * moved, 1e-3)))

    def percentile(end: float) -> np.ndarray:
        return mean + quantiles(ordered, norm.cdf(end))

    own_error = np.sqrt(np.maximum(deviation**2 @ weights.T - draws**2, 0) / (n - 1))
    still = own_error < 1e-12  # a draw of one value over and over has no error of its own to be divided by
    ratio = np.where(still, np.sign(np.round(draws, 12)) * 1e9, draws / np.where(still, 1, own_error))
    ends = np.quantile(ratio, [0.975, 0.025], axis=1)
    return {
        "percentile": (percentile(-z), percentile(z)),
        "expanded": (percentile(-wide), percentile(wide)),
        "BCa": (accelerated(-z), accelerated(z)),
        "expanded BCa": (accelerated(-wide), accelerated(wide)),
        "bootstrap-t": (mean - ends[0] * error, mean - ends[1] * error),
        "Student-t": (mean - t * error, mean + t * error),
    }


class Outcome(NamedTuple):
    coverage: float
    above: float
    """Share of studies whose whole interval is above the truth."""
    below: float
    width: float
    """Mean width; infinite for a method without a bound in some study."""
    outside: float
    """Share of studies whose interval leaves the range of the population."""
    flat: float
    """Share of studies whose queries all have one value."""


def study(population: np.ndarray, n: int, studies: int, rng: np.random.Generator) -> dict[str, Outcome]:
    truth, slack = population.mean(), 1e-9
    found: dict[str, list[np.ndarray]] = {}
    flat = []
    for _ in range(studies // BLOCK):
        values = population[rng.integers(0, len(population), (BLOCK, n))]
        flat.append(np.ptp(values, axis=1) < slack)
        for method, ends in bounds(values, rng).items():
            found.setdefault(method, []).append(np.stack(ends))
    outcomes = {}
    for method, blocks in found.items():
        low, high = np.concatenate(blocks, axis=1)
        above, below = (low > truth + slack).mean(), (high < truth - slack).mean()
        outside = ((low < population.min() - slack) | (high > population.max() + slack)).mean()
        outcomes[method] = Outcome(1 - above - below, above, below, (high - low).mean(), outside, np.concatenate(flat).mean())
    return outcomes


# ---- what is printed ----


def table(header: list[str], rows: list[list[str]]) -> None:
    print("| " + " | ".join(header) + " |\n|" + "---|" * len(header))
    print("\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n", flush=True)


def print_methods(outcomes: dict[tuple[str, str, int], dict[str, Outcome]], sizes: tuple[int, ...]) -> None:
    """By n and method: mean coverage, the lowest and highest of any population, how many are within a point."""
    rows = []
    for n in sizes:
        chosen = [o for (*_, size), o in outcomes.items() if size == n and o["percentile"].flat < 0.01]
        for method in chosen[0]:
            coverage = np.array([o[method].coverage for o in chosen])
            width = np.median([o[method].width / o["percentile"].width for o in chosen])
            near = (np.abs(coverage - 0.95) < 0.0105).mean()
            worse = np.mean([max(o[method].above, o[method].below) for o in chosen])
            outside = np.mean([o[method].outside for o in chosen])
            figures = [f"{coverage.mean():.3f}", f"{coverage.min():.3f} to {coverage.max():.3f}", f"{near:.0%}", f"{worse:.3f}"]
            rows.append([f"{n} ({len(chosen)})", method, *figures, f"{width:.2f}", f"{outside:.0%}"])
    header = [
        "n (populations)",
        "method",
        "coverage",
        "lowest to highest",
        "within 1 point",
        "worse tail",
        "width",
        "out of range",
    ]
    table(header, rows)


def print_flat(outcomes: dict[tuple[str, str, int], dict[str, Outcome]]) -> None:
    """What `print_methods` leaves out: populations in which one sample of n in a hundred, or more, has a single value."""
    rows = []
    for (scorer, measure, n), o in outcomes.items():
        if o["percentile"].flat >= 0.01:
            methods = ("percentile", "expanded", "expanded BCa", "bootstrap-t")
            rows.append([str(n), scorer, measure, f"{o['percentile'].flat:.3f}", *(f"{o[m].coverage:.3f}" for m in methods)])
    table(["n", "scorer", "measure", "one value only", "percentile", "expanded", "expanded BCa", "bootstrap-t"], rows)


def print_measures(outcomes: dict[tuple[str, str, int], dict[str, Outcome]], n: int) -> None:
    """Every population at one n, percentile against expanded, with both tails."""
    rows = []
    for (scorer, measure, size), outcome in outcomes.items():
        if size == n:
            two = (outcome[method] for method in ("percentile", "expanded"))
            cells = [f"{o.coverage:.3f} ({o.above:.3f}, {o.below:.3f})" for o in two]
            rows.append([scorer, measure, *cells, f"{outcome['percentile'].flat:.3f}"])
    table(["scorer", "measure", "percentile (above, below)", "expanded (above, below)", "one value only"], rows)


def holds(interval: Interval, truth: float) -> bool:
    return interval.low - 1e-9 <= truth <= interval.high + 1e-9


def print_refitted(studies: int, rng: np.random.Generator) -> None:
    """The whole procedure: each study fits its cutoff on n queries and measures overlap and F1 on n others."""
    worth, grades = pools(QUERIES, 20, rng)
    scores = score(worth, SCORERS["unsteady"], rng)
    grid, names, rows = np.linspace(0, 1, 201), ("overlap", "retained_f1"), []
    known = [{name: v.mean() for name, v in per_query(scores, grades, cutoff, names).items()} for cutoff in grid]
    for n in (10, 20, 50, 200):
        hits: dict[str, list[tuple[float, Interval]]] = {name: [] for name in names}
        for seed in range(studies):
            fit, test = np.split(rng.choice(len(scores), 2 * n, replace=False), 2)
            cutoff = fit_cutoff(list(scores[fit, 0]), list(grades[fit]))
            for name, values in per_query(scores[test], grades[test], cutoff, names).items():
                truth = float(np.interp(cutoff, grid, [k[name] for k in known]))
                hits[name].append((truth, mean_interval([values], scheme="queries", draws=DRAWS, seed=seed)))
        for name, found in hits.items():
            at_cutoff = np.mean([holds(interval, truth) for truth, interval in found])
            average = float(np.mean([truth for truth, _ in found]))
            of_average = np.mean([holds(interval, average) for _, interval in found])
            rows.append([str(n), name, f"{at_cutoff:.3f}", f"{of_average:.3f}"])
    table(["n measured", "measure", "mean at the study's own cutoff", "mean over cutoffs"], rows)


def print_collections(studies: int, rng: np.random.Generator) -> None:
    """Collections then queries over few collections of 50 queries, by how much collections differ."""
    rows = []
    for count in (2, 3, 5, 10, 18):
        cells = []
        for between in (0.0, 0.03, 0.08):
            hits = []
            for seed in range(studies):
                values = list(rng.normal(rng.normal(0, between, (count, 1)), 0.2, (count, 50)))
                hits.append(holds(mean_interval(values, draws=DRAWS, seed=seed), 0.0))
            cells.append(f"{np.mean(hits):.3f}")
        rows.append([str(count), *cells])
    table(["collections", "SD between them 0", "0.03", "0.08"], rows)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stored", nargs="*", metavar="measures.parquet", help="per-query values of stored runs")
    parser.add_argument("--studies", type=int, default=2000, help="studies per population and n (default 2000)")
    args = parser.parse_args(argv)
    sources = {"simulated": list(simulated_populations(np.random.default_rng(SEED)))}
    if args.stored:
        sources["stored runs"] = [found for path in args.stored for found in stored_populations(path)]
    for source, populations in sources.items():
        rng, outcomes = np.random.default_rng([SEED, 1]), {}
        for scorer, measure, values in populations:
            values = values[~np.isnan(values)]
            for n in SIZES:
                outcomes[scorer, measure, n] = study(values, n, args.studies, rng)
            print(f"{scorer}, {measure}: {len(values)} queries, mean {values.mean():.3f}", file=sys.stderr, flush=True)
        print(f"{source}: {len(populations)} populations\n")
        print_methods(outcomes, SIZES)
        print_flat(outcomes)
        print("n = 20\n")
        print_measures(outcomes, 20)
    print_refitted(args.studies // 4, np.random.default_rng([SEED, 2]))
    print_collections(args.studies // 4, np.random.default_rng([SEED, 3]))


if __name__ == "__main__":
    main()
