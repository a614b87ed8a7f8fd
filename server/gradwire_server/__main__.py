"""`python -m gradwire_server`: `gradwire serve`, or with --embedded the server of one client process."""

import sys


def main() -> None:
    """Start the one or the other. The embedded one does without the settings' machinery, to be quick."""
    arguments = sys.argv[1:]
    if "--embedded" in arguments:
        from gradwire_server.app.embedded import main as embedded

        sockets = [each.partition("=")[2] for each in arguments if each.startswith("--socket=")]
        if "--socket" in arguments[:-1]:
            sockets.append(arguments[arguments.index("--socket") + 1])
        embedded(sockets[0] if sockets else None)
    else:
        from gradwire_server.app.cli import serve

        serve(prog_name="gradwire serve")


if __name__ == "__main__":
    main()
