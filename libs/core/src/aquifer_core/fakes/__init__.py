"""In-memory implementations of the roles, held to the same contract suites as the real ones."""
