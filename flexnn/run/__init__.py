"""Running models inside a budget: ``open_run`` opens one behind the protocol ``Run``; engine, outputs, traces."""
