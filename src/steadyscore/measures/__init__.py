"""Arithmetic on an array of scores: quality, order instability, decisions, intervals."""
