"""`python -m gradwire_server`: `gradwire serve`, or with --embedded the server of one client process."""

import sys

from gradwire_server.worker.process_end import end_process


def main() -> None:
    """Start the one or the other. The embedded one does without the settings' machinery, to be quick."""
    arguments = sys.argv[1:]
    if "--embedded" in arguments:
        from gradwire_server.app.embedded import main as embedded

        embedded(_option(arguments, "--socket"), int(_option(arguments, "--workers") or 0))
    else:
        from gradwire_server.app.cli import serve

        serve(prog_name="gradwire serve")


def _option(arguments: list[str], name: str) -> str | None:
    """The value of `--name value` or `--name=value`; None without one."""
    for place, each in enumerate(arguments):
        if each.startswith(f"{name}="):
            return each.partition("=")[2]
        if each == name and place + 1 < len(arguments):
            return arguments[place + 1]
    return None


if __name__ == "__main__":
    main()
    end_process()
