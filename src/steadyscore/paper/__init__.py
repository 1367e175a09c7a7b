"""Every table and figure of the paper from stored runs: recipes as data, what they need, collation, and layout."""
