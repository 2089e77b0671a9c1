"""kernels: one record per operator, their inference and plans, and the C kernels that run them."""
