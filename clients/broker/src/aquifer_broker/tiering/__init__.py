"""The broker's side of tiered storage; nothing in here is imported unless it is enabled (SR-1)."""
