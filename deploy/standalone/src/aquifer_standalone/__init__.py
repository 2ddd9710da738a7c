"""One-command Aquifer on a bare machine: every process supervised on loopback."""
