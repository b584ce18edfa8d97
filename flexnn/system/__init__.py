"""Budgets that come from the system: what control groups, the system and RLIMIT_AS leave, looked at again while models
run. All modules but process are imported only where a budget asks for them.
"""
