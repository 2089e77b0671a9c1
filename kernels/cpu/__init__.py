"""The CPU's backend: C kernels, the code that is generated and compiled for them, shapes and costs
as they want them. tables/ says which kernel runs a call."""
