"""`import horovod.mxnet as hvd` in compatibility mode: Horovod's names on `mx.dist`."""

__version__ = "0.28.1"  # the API that plait follows
