"""Model zoo: published network architectures, with MXNet's parameter names."""

from . import model_store, vision  # noqa: F401
from .vision import get_model  # noqa: F401
