"""Programs as plans: tracing, scheduling, and kernels that write into memory that exists."""
