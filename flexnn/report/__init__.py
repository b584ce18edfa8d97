"""A plan as one page for people (``flexnn plan --html``): predicted times, what lies where in memory, and when."""
