"""`make fuzz-guided N=100000`: N cases of every format, steered by what they reach in our code (atheris, which is libFuzzer).

Each format runs in a process of its own and its corpus stays in --folder, so that a run which is stopped, or ends after
--seconds, goes on where it was; cases and seconds add up. A case that ends in anything but a value or a sentence is kept under
`findings/`, one for each place in the code; a hang, a crash of the process and memory above a gigabyte end the process and are
kept by libFuzzer in the same place. Exit 1 where there is a finding.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

MOST_MEMORY = 1024
"""MB of the process."""
MOST_SECONDS = 10
"""Of one case; more is a hang."""
LONGEST = 1 << 13
"""Bytes of a case; the hypothesis suite has longer ones."""
SEEDS = 30
"""Right and nearly right files that a corpus begins with."""
ADDED = ("cases", "accepted", "refused", "seconds")


# -- one format, in a process of its own


def fuzz(name: str, cases: int, seconds: float, folder: Path) -> None:
    """Run cases of a format; libFuzzer ends the process, so what became of them is written as they come."""
    import atheris

    with atheris.instrument_imports(include=["steadyscore"]):
        from tests.fuzz.formats import FORMATS, ODD, RAW, changed, outcome

        format, scratch = FORMATS[name], Path(tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
        corpus = folder / "corpus"
        if not corpus.is_dir():
            corpus.mkdir(parents=True)
            _write_seeds(name, corpus)
        for seed in corpus.iterdir():  # what a reader imports when it is called is steered by, too
            try_case(lambda content: outcome(format, scratch, content), seed.read_bytes(), folder)

    pieces = [*(text.encode() for text in ODD), *RAW]
    counts = {"cases": 0, "accepted": 0, "refused": 0}
    began = time.process_time()

    def one(content: bytes) -> None:
        became = try_case(lambda content: outcome(format, scratch, content), content, folder)
        counts["cases"] += 1
        if became:
            counts[became] += 1
        if counts["cases"] % 1000 == 0 or counts["cases"] >= cases:
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            (folder / "piece.json").write_text(json.dumps(counts | {"seconds": time.process_time() - began, "memory": peak}))

    def mutate(content: bytes, longest: int, seed: int) -> bytes:
        """A token exchanged, moved or left out in half of the cases; libFuzzer's own changes of bytes in the others."""
        dice = random.Random(seed)
        if dice.random() < 0.5:
            return atheris.Mutate(content, longest)
        kinds = ("replace", "insert", "swap", "drop", "flip")
        wanted = [(dice.choice(kinds), dice.randrange(2000), dice.choice(pieces)) for _ in range(dice.randint(1, 3))]
        return changed(content, wanted)[:longest]

    limits = [f"-runs={cases}", f"-max_total_time={int(seconds)}", f"-timeout={MOST_SECONDS}", f"-rss_limit_mb={MOST_MEMORY}"]
    where = [f"-max_len={LONGEST}", f"-artifact_prefix={folder / 'findings'}/libfuzzer-", str(corpus)]
    warnings.simplefilter("error")
    atheris.Setup([sys.argv[0], *limits, *where], one, custom_mutator=mutate)
    atheris.Fuzz()


def _write_seeds(name: str, corpus: Path) -> None:
    """What the hypothesis suite begins with: right files, and some with a change."""
    from hypothesis import HealthCheck, Phase, given, settings

    from tests.fuzz.formats import FORMATS, changed, changes

    @settings(max_examples=SEEDS, database=None, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(FORMATS[name].content, changes)
    def write(content: bytes, wanted: list[Any]) -> None:
        for made in (content, changed(content, wanted)):
            (corpus / hashlib.sha1(made).hexdigest()).write_bytes(made[:LONGEST])

    write()


def try_case(read: Any, content: bytes, folder: Path) -> str | None:
    """What became of a case; None where it is a finding, which is kept."""
    try:
        return read(content)
    except Exception as fault:
        frame = traceback.extract_tb(fault.__traceback__)[-1]
        place = hashlib.sha1(f"{type(fault).__name__} {frame.filename} {frame.lineno}".encode()).hexdigest()[:10]
        (findings := folder / "findings").mkdir(exist_ok=True)
        if not (kept := findings / place).exists():
            kept.write_bytes(content)
            kept.with_suffix(".txt").write_text("".join(traceback.format_exception(fault))[-5000:])
        return None


# -- all formats


def run_piece(name: str, state: dict[str, Any], cases: int, seconds: float, folder: Path) -> dict[str, Any]:
    """Go on with a format for so many cases or seconds; the state with what was added."""
    (folder / "findings").mkdir(parents=True, exist_ok=True)
    (folder / "piece.json").unlink(missing_ok=True)
    command = [sys.executable, "-m", "tests.fuzz.guided", "--folder", str(folder), "--one", name]
    command += ["-n", str(cases), "--seconds", str(seconds)]
    said = subprocess.run(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, errors="replace").stderr
    if not (folder / "piece.json").exists():
        raise SystemExit(f"{name}: the fuzzer ran no case\n{said[-3000:]}")
    piece = json.loads((folder / "piece.json").read_text())
    coverage = re.findall(r"cov: (\d+)", said)
    return {
        **{key: state.get(key, 0) + piece[key] for key in ADDED},
        "coverage": max([state.get("coverage", 0), *map(int, coverage)]),
        "memory": max(state.get("memory", 0), piece["memory"]),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("formats", nargs="*", metavar="FORMAT", help="only these")
    parser.add_argument("-n", type=int, default=100_000, help="cases per format, those of earlier runs included")
    parser.add_argument("--seconds", type=float, default=3600, help="stop after so many and go on the next time")
    parser.add_argument("--folder", type=Path, default=Path(".fuzz"), help="corpus, findings and counts")
    parser.add_argument("--one", metavar="FORMAT", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        fuzz(args.one, args.n, args.seconds, args.folder)
        return 0
    from tests.fuzz.formats import FORMATS

    began, file = time.monotonic(), args.folder / "counts.json"
    states: dict[str, dict[str, Any]] = json.loads(file.read_text()) if file.exists() else {}
    for name in args.formats or FORMATS:
        left = args.n - states.get(name, {}).get("cases", 0)
        seconds = args.seconds - (time.monotonic() - began)
        if left > 0 and seconds > 5:
            states[name] = run_piece(name, states.get(name, {}), left, seconds, args.folder.resolve() / name)
            file.write_text(json.dumps(states, indent=1))
    findings = {name: sorted((args.folder / name / "findings").glob("*.txt")) for name in states}
    crashes = {name: sorted((args.folder / name / "findings").glob("libfuzzer-*")) for name in states}
    print(
        f"{'format':<12}{'cases':>9}{'accepted':>10}{'refused':>9}{'cpu s':>8}{'cases/s':>9}{'coverage':>10}{'peak MB':>9}"
        f"{'findings':>10}"
    )
    for name, state in states.items():
        found = len(findings[name]) + len(crashes[name])
        speed = state["cases"] / max(state["seconds"], 1e-9)
        print(
            f"{name:<12}{state['cases']:>9,}{state['accepted']:>10,}{state['refused']:>9,}{state['seconds']:>8.1f}{speed:>9,.0f}"
            f"{state['coverage']:>10,}{state['memory']:>9.0f}{found:>10}"
        )
    for file in (file for files in findings.values() for file in files):
        print(f"\n{file.with_suffix('')}\n{file.read_text()[-1200:]}")
    print(*(file for files in crashes.values() for file in files), sep="\n", end="")
    return int(any(findings.values()) or any(crashes.values()))


if __name__ == "__main__":
    sys.exit(main())
