"""The mainline Ascend backend's import path; `tilelang.ascend.language` is its dialect of the
language.
"""
