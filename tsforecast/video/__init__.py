"""Videos: simulated physics, data, scores by optimal transport, and pictures (strips, charts, GIFs)."""
