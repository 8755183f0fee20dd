"""Lowering for machines on which many threads run a block: layouts, and what each thread does."""
