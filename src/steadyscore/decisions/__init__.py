"""Typed questions about one state, and the two request shapes in which decision models are asked them."""
