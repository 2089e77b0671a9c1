"""Arrays cross between plait, torch and JAX without a copy."""

import jax.numpy as jnp
import torch
from plait import np

x = np.array([[1.0, 2.0], [3.0, 4.0]])
assert jnp.from_dlpack(x).tolist() == [[1, 2], [3, 4]]
t = torch.from_dlpack(x)
t[0, 0] = 7
assert x[0, 0] == 7

y = np.from_dlpack(torch.arange(4.0))
assert type(y) is np.ndarray and y.tolist() == [0, 1, 2, 3]
u = torch.zeros(3)
z = np.from_dlpack(u)
u += 1
assert z.tolist() == [1, 1, 1]

y = np.from_dlpack(jnp.arange(4.0), copy=False)
assert type(y) is np.ndarray and y.tolist() == [0, 1, 2, 3]
try:
    y += 1
except ValueError as error:
    assert "read-only" in str(error)
else:
    raise AssertionError("JAX's arrays are written")
print("plait, torch and JAX share memory")
