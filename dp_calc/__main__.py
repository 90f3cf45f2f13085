"""``python -m dp_calc`` is the same as ``dp-calc``."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
