"""Array modules other than NumPy, with NumPy's behaviour."""
