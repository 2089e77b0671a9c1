"""kernels: one record per operator, their inference and plans, and the C kernels that run them."""

import os


def module_names(init_file: str) -> list[str]:
    """The modules beside an __init__.py, sorted."""
    names = (os.path.splitext(name) for name in os.listdir(os.path.dirname(init_file)))
    return sorted(name for name, suffix in names if suffix == ".py" and name != "__init__")
