"""How the library was built (torch.__config__): the server's libraries, since it computes."""

from gradwire._session.sessions import server_info

__all__ = ["parallel_info", "show"]


def show() -> str:
    """The release, and the server's versions of what it computes with."""
    return f"gradwire: {server_info()}"


def parallel_info() -> str:
    """The same: the server decides how many threads compute."""
    return show()
