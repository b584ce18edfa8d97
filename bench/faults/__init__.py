"""Benches of what must not go wrong: interrupts, long runs, faults while budgets change, the same faults on peers."""
