"""Faults that are injected for real, and what they cost: `make faults` (lab/findings/reliability.md)."""
