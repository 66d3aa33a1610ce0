"""`python -m tsforecast` is the command `tsforecast`."""

import sys

from tsforecast.cli import main

if __name__ == "__main__":
    sys.exit(main())
