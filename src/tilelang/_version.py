"""The version, in one place: the upstream release whose language this is, then our own number.

Read statically by the build and at run time by `tilelang.__version__` and the cache key.
"""

__version__ = "0.1.15+tilewright.0.1.0"
