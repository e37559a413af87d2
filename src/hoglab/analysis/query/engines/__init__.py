"""What engines say differently: a protocol of primitives, and each engine."""
