"""One prompt: an order of candidates becomes text, then token ids, then grades."""
