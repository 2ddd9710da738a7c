"""Vocabulary, log formats and abstract roles of tiered storage; no I/O."""
