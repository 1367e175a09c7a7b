"""What a run means: `audit()` makes it, `load()` reads it back, and an `Audit` holds its figures with their intervals."""
