"""Passes: plain functions of a program and a target. Checks are in `check`, lowerings beside it."""
