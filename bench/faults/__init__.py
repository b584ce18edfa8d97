"""Benches of what must not go wrong: interrupts, long runs, faults while budgets change, damaged files."""
