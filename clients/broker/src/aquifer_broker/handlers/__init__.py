"""One module per API family: parse, call, answer."""
