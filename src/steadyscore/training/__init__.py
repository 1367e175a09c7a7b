"""From labels and a recipe to an adapter: OC-SFT and every baseline."""
