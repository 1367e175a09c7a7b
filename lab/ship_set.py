"""Write `smollm2-135m-set`: the weights of a finished training run in float16, and its card with what its evaluations found.

    python lab/ship_set.py LAB/runs/set-42 src/steadyscore/models/shipped/smollm2-135m-set lab/set-42-findings.json

The cutoff is the F1-tuned one of the tuning pools.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from safetensors.torch import load_file, save_file

from steadyscore.models.card import read_card, write_card

WEIGHTS = "adapter_model.safetensors"


def main() -> None:
    trained, shipped, findings = map(Path, sys.argv[1:])
    told = json.loads(findings.read_text())
    card = read_card(trained)
    card["initial"] = {"adapter": "lab/set-180"}
    card.update(name="smollm2-135m-set", licence="other", **told)
    write_card(shipped, card)
    shutil.copy(trained / "adapter_config.json", shipped)
    halves = {name: weights.half() for name, weights in load_file(trained / WEIGHTS).items()}
    save_file(halves, shipped / WEIGHTS, {"format": "pt"})


if __name__ == "__main__":
    main()
