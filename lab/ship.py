"""A trained adapter as the package ships it: half precision, with what it measured.

    python lab/ship.py TRAINED src/steadyscore/models/shipped/NAME [--tuned RUN]

The cutoff of the card is the one that the audit in RUN tuned, with the overlap and the share kept that it found there.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from steadyscore.audits.load import load_run
from steadyscore.models.adapter import WEIGHTS
from steadyscore.models.card import read_card, write_card
from steadyscore.runs.folder import find_run

ABOUT = (
    "Trained on windows of TREC DL 2022 (MS MARCO passages: non-commercial research use), SQuAD 1.1 and HotpotQA (CC BY-SA "
    "4.0) and WikiQA (Microsoft Research data licence: research use), with grades from the cosine of all-MiniLM-L6-v2 "
    "(Apache-2.0). None of these texts is in the package; what may be done with weights that learned from them is for their "
    "licences to say. What it reaches, and where it does not help: docs/results.md; how it was made, with the failures: "
    "lab/LOG.md."
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trained", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--tuned", type=Path, metavar="RUN")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    weights = {name: tensor.to(torch.float16) for name, tensor in load_file(args.trained / WEIGHTS).items()}
    save_file(weights, args.out / WEIGHTS, metadata={"format": "pt"})
    shutil.copy(args.trained / "adapter_config.json", args.out)
    start = {"adapter": "lab/warm-start"}  # as the repository calls it
    card = read_card(args.trained) | {"name": args.out.name, "initial": start, "licence": "other", "about": ABOUT}
    if args.tuned:
        run = find_run(args.tuned)
        audit = load_run(run)
        measured = {name: round(audit.figures[name].value, 3) for name in ("overlap", "retention")}
        cutoff = audit.to_json()["cutoff"]
        on = f"{len(audit.queries)} queries of {audit.collection}"
        card["cutoff"] = {"value": round(cutoff["value"], 3), **measured, "how": cutoff["how"], "on": on}
    write_card(args.out, card)


if __name__ == "__main__":
    main()
