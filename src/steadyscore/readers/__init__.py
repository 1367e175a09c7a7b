"""Frozen models that read what a scorer ranks first: their prompts, outputs and cost."""
