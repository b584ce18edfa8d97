"""``flexnn bench``: latency against memory, and what each part of the design is worth, on this machine."""
