"""Array modules other than NumPy, with NumPy's behaviour, and native libraries."""
