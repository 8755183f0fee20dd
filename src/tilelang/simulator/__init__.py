"""Runs lowered programs on models of machines: `target="simulate:<chip>"`.

`machine` is what all models are made of, and names no vendor, and `values` are their operators;
each other folder is one kind of machine. What enters a model is a `Program` of the thread stage,
just as an emitter prints it, and arrays. What leaves: the arrays, changed, and findings at the
author's lines.
"""
