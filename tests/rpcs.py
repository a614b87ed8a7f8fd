"""RPCs by what they ask for: for tests that go through all of them."""

#: RPCs whose request names no session.
WITHOUT_SESSION = {
    "ServerInfo", "ListOps", "ListSessions", "EndSession", "RestoreSession", "ListSnapshots", "DeleteSnapshot",
    "ListFiles", "DeleteFile",
}  # fmt: skip
#: RPCs that are answered though there is no session of that name.
NEEDS_NO_SESSION = WITHOUT_SESSION | {"OpenSession", "CloseSession"}
