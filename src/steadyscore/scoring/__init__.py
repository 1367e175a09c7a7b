"""A collection under M orders, scored into a run folder."""
