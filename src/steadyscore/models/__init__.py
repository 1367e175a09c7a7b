"""Weights on this disk: the embedded model, GGUF files, adapters."""
