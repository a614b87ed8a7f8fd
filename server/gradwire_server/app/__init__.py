"""The server as a program: command line, settings, metrics."""
