"""Errors that name what a file asks for and this version does not have."""

__all__ = ["UnsupportedOptionError"]


class UnsupportedOptionError(ValueError):
    """The checkpoint uses an option that this version does not have."""
