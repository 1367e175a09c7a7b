"""Audits as one page: sentences, figures, examples."""
