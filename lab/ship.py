"""A trained adapter as the package ships it: half precision, with what it measured.

    python lab/ship.py TRAINED src/steadyscore/adapters/NAME [--cutoff VALUE OVERLAP]

The cutoff of the card is the one that the audit tuned, with the overlap it found there under reordering.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from steadyscore.adapter import WEIGHTS, read_card, write_card


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trained", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--cutoff", type=float, nargs=2, metavar=("VALUE", "OVERLAP"))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    weights = {name: tensor.to(torch.float16) for name, tensor in load_file(args.trained / WEIGHTS).items()}
    save_file(weights, args.out / WEIGHTS, metadata={"format": "pt"})
    shutil.copy(args.trained / "adapter_config.json", args.out)
    card = read_card(args.trained)
    if args.cutoff:
        card["cutoff"] = dict(zip(("value", "overlap"), args.cutoff, strict=True))
    write_card(args.out, card)


if __name__ == "__main__":
    main()
