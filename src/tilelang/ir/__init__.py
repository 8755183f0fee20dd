"""The intermediate representation: nodes, expressions, the tile stage, its text form and its
verifier.
"""
