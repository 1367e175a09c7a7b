"""What scoring leaves on disk: the run folder, its score table, and score files of other tools."""
