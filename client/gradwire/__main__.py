"""`python -m gradwire` is the `gradwire` command."""

from gradwire._cli import main

if __name__ == "__main__":
    main()
