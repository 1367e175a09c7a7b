"""A trained adapter as the package ships it: half precision, with a card that says what its evaluations found.

    python lab/ship.py TRAINED src/steadyscore/models/shipped/NAME

What training does not know (start, licence, cutoff, where it helps and where not) comes from lab/findings/NAME.json.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from safetensors.torch import load_file, save_file

from steadyscore.models.adapter import WEIGHTS
from steadyscore.models.card import read_card, write_card


def main() -> None:
    trained, shipped = map(Path, sys.argv[1:])
    findings = Path(__file__).parent / "findings" / f"{shipped.name}.json"
    shipped.mkdir(parents=True, exist_ok=True)
    card = read_card(trained).to_json() | {"name": shipped.name} | json.loads(findings.read_text())
    (shipped / "card.json").write_text(json.dumps(card))
    write_card(shipped, read_card(shipped))  # checked, and with its page
    shutil.copy(trained / "adapter_config.json", shipped)
    halves = {name: weights.half() for name, weights in load_file(trained / WEIGHTS).items()}
    save_file(halves, shipped / WEIGHTS, {"format": "pt"})


if __name__ == "__main__":
    main()
