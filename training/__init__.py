"""Training without blocks: optimizers, initializers, metrics, stores, checkpoints, Module ..."""
