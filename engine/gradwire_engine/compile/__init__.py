"""Programs as plans: tracing, scheduling, and kernels that write into existing memory."""
