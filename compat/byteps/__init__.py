"""`import byteps.mxnet as bps` in compatibility mode: BytePS' names on `mx.dist`."""

__version__ = "0.2.5"  # the API that plait follows
