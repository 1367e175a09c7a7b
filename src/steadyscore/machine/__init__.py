"""This machine: files that appear whole, checksums, the terminal, optional packages, secrets."""
