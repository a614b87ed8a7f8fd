"""`python -m gradwire` is the `gradwire` command."""

import sys

from gradwire._cli.main import main

if __name__ == "__main__":
    sys.exit(main())
