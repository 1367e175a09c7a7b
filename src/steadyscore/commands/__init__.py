"""One module per verb: `arguments(parser)` declares, `run(args)` calls one function of the floors below and prints."""
