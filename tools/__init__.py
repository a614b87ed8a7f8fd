"""Scripts of the repository; the tests import what they check."""
