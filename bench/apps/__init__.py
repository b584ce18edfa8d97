"""Figures that an application sees: opening, first starts, the launcher, pools, clusters."""
