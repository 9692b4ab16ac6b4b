"""The version of the package, which is the library's: the import checks it, and pyproject.toml reads it."""

__version__ = "0.1.0"
