"""What is generated for the SDKs of other languages: `functions` is common, each language has a module."""
