"""Errors that a caller may want to tell from other wrong values."""

__all__ = ["SeveralHeadsError", "UnsupportedOptionError"]


class SeveralHeadsError(ValueError):
    """The checkpoint holds several heads and none was chosen.

    Attributes:
        heads: branch of each name and alias that can be chosen.
    """

    def __init__(self, message: str, heads: dict[str, str]):
        super().__init__(message)
        self.heads = heads

    def __reduce__(self):
        # So that it survives the way back from another process.
        return type(self), (str(self), self.heads)


class UnsupportedOptionError(ValueError):
    """The checkpoint uses an option that this version does not have."""
