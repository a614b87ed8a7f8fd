"""What every process of the server uses: errors, limits, logging, the wire's encoding, shared counters."""
