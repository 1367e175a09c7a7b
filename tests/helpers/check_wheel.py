"""The wheel as a stranger installs it: with the core alone and with each extra alone, every verb works or names its extra.

    python -m tests.helpers.check_wheel [ENVIRONMENT ...]        or: make test-wheel ENVIRONMENTS="core reports"

Builds the wheel, keeps one environment per extra under $WHEELS (default: .wheels), puts the new wheel into each and runs the
help and the two help examples of every verb, in an empty folder, without a network. An example that would take minutes has
a small stand-in. Prints a table of verbs by environments and ends with 1 if anything ended with a stack trace.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from tests.helpers.paths import ROOT

ENVIRONMENTS = ("core", "reports", "hosted", "data", "local", "train", "serve", "dense", "hub-data", "stores")
"""What is checked by default; vLLM and Ray have environments of their own."""
WITH_TORCH = ("local", "train", "serve", "dense")
SECONDS = 300
"""How long a command may take; a server that is still up when its time ends works."""
SERVER_SECONDS = 40

SMALL = "--data passages --queries 2 --pool 4 --width 4 --chars 60"
STAND_INS = {
    "demo": ["demo --scorer synthetic:slot --out runs/demo"],
    "audit": [
        "audit --scorer synthetic:slot --data passages --out runs/first",
        "audit --scorer synthetic:slot --scorer synthetic:none --data responses --out runs/planted",
        f"audit --scorer smollm2-135m {SMALL} --permutations 2 --out runs/model",
    ],
    "label": [
        "label --scorer judgements --data passages --out labels/judged",
        f"label --scorer smollm2-135m {SMALL} --out labels/model",
    ],
    "train": [
        f"train --base smollm2-135m --labels judgements {SMALL} --steps 1 --batch 1 --held-out 1 --out adapters/{more}"
        for more in ("none --dry-run", "first --seed 1", "single --objective single_order")
    ],
    "study": [
        "study attack --scorer synthetic:companion --data passages --queries 3 --pool 4 --out runs/attack",
        "study width --scorer synthetic:slot --data passages --queries 3 --pool 4 --width 2 --permutations 2 --out runs/width",
        "study variance runs/planted/responses/synthetic-slot",
        "study teachers --pair labels/judged runs/first --pair labels/judged runs/first --data passages",
        "study plan runs/planted/responses/synthetic-slot --measure pair_flip --margin 0.05",
        "study validate",
    ],
    "adapter": ["adapter show smollm2-135m-oc", "adapter verify smollm2-135m-oc"],
    "serve": ["serve --port 8731", "serve planted=synthetic:slot --port 8731"],
    "explore": ["explore --no-browser --port 8731 planted=synthetic:slot:0.3 steady=synthetic:none"],
}
"""Instead of examples that take minutes with a model, open a browser, or need what only another extra can make."""
WORKS, TRACE = "works", "TRACE"


def build(folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT)]
    subprocess.run(command, check=True)
    return next(folder.glob("*.whl"))


def install(wheel: Path, extra: str, folder: Path) -> Path:
    """The environment of an extra, new or as it was, with this wheel in it; gives its `steadyscore`."""
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if not (folder / "bin" / "steadyscore").exists():
        venv.create(folder, with_pip=True)
        # torch exactly, in the same call: a wider pin takes the CUDA build.
        torch = ["torch==2.13.0"] if extra in WITH_TORCH else []
        named = str(wheel) if extra == "core" else f"{wheel}[{extra}]"
        subprocess.run([*pip, "--constraint", str(ROOT / "constraints.txt"), *torch, named], check=True)
    subprocess.run([*pip, "--no-deps", "--force-reinstall", str(wheel)], check=True)
    return folder / "bin" / "steadyscore"


def examples(help_text: str) -> list[str]:
    """The commands at the end of a help text."""
    return re.findall(r"^  (steadyscore .*)$", help_text.partition("examples:")[2], re.M)


def run(program: Path, command: str, folder: Path, seconds: float = SECONDS) -> tuple[int | None, str, str]:
    """Exit code (None: still running when its time ended), stdout and stderr of one command."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        words = [str(program), *shlex.split(command)[1:]]
        process = subprocess.Popen(words, cwd=folder, stdout=out, stderr=err, env=_surroundings())
        try:
            code: int | None = process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.terminate()
            process.wait(60)
            code = None
        texts = []
        for stream in (out, err):
            stream.seek(0)
            texts.append(stream.read())
        return code, texts[0], texts[1]


def _surroundings() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    return kept | {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "COLUMNS": "100"}


def verdict(code: int | None, out: str, err: str, is_server: bool = False) -> str:
    """What a command did: worked, named an extra in its last sentence or its results, refused otherwise, or fell over."""
    if "Traceback (most recent call last)" in err or (code is None and not is_server):
        return TRACE
    if code in (0, None):
        return WORKS
    said = err.strip().splitlines()[-1] if err.strip() else out
    if named := re.findall(r"pip install [^\n]*\[([a-z,-]+)\]'", said):
        return f"names {','.join(sorted({extra for extras in named for extra in extras.split(',')}))}"
    return "refuses" if said else TRACE


def check(program: Path, verb: str, folder: Path) -> tuple[str, list[str]]:
    """The cell of a verb, and what a reader of the table must see of what went wrong."""
    code, text, err = run(program, f"steadyscore {verb} --help", folder)
    found, wrong = [verdict(code, text, err)], [] if code == 0 else [f"{verb} --help: {err[-2000:]}"]
    for command in [f"steadyscore {words}" for words in STAND_INS.get(verb, [])] or examples(text):
        is_server = verb in ("serve", "explore")
        code, out, err = run(program, command, folder, SERVER_SECONDS if is_server else SECONDS)
        found.append(verdict(code, out, err, is_server))
        if found[-1] == TRACE or found[-1] == "refuses":
            wrong.append(f"{command}: {found[-1]}: {err[-2000:]}")
    return cell(found), wrong


def cell(found: list[str]) -> str:
    """One word for a verb whose help works: what all its examples did, or each of them."""
    if TRACE in found:
        return TRACE
    return " / ".join(dict.fromkeys(found[1:] or found))


def table(cells: dict[str, dict[str, str]]) -> str:
    """Verbs down, environments across."""
    verbs = list(next(iter(cells.values())))
    rows = [["verb", *cells], *([verb, *(cells[name][verb] for name in cells)] for verb in verbs)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows)


def main(asked: list[str]) -> int:
    wheels = Path(os.environ.get("WHEELS", ROOT / ".wheels")).resolve()
    wheels.mkdir(parents=True, exist_ok=True)
    cells: dict[str, dict[str, str]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        wheel = build(Path(scratch))
        for extra in asked or ENVIRONMENTS:
            program = install(wheel, extra, wheels / extra)
            _, text, _ = run(program, "steadyscore --help", Path(scratch))
            cells[extra] = {}
            (folder := Path(scratch, f"in-{extra}")).mkdir()
            for verb in re.findall(r"^    (\w+)(?: |$)", text, re.M):
                cells[extra][verb], wrong = check(program, verb, folder)
                print(f"{extra}: {verb}: {cells[extra][verb]}", *wrong, sep="\n  ", file=sys.stderr, flush=True)
    print(table(cells))
    return int(any(TRACE in column.values() for column in cells.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
