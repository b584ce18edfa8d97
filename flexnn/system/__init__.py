"""Budgets that come from the system: what control groups, the system and RLIMIT_AS leave, looked at again while models
run. Its modules are imported only where a budget asks for it.
"""
