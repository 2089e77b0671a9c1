"""mx.contrib: what MXNet kept beside its core."""
