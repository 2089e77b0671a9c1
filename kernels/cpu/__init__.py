"""CPU kernels: C sources, and the table entries that choose among them."""
