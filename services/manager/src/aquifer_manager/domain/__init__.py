"""Decisions of the manager: what to copy, when to expire, how to answer a tiered fetch."""
