"""mx.registry: classes by name, for `create` functions that take a name or JSON text."""

from __future__ import annotations

from typing import Any, TypeVar

from .error import InvalidType, InvalidValue, MissingKey, compose, did_you_mean, parse_json

Class = TypeVar("Class")
_tables: dict[type, dict[str, Any]] = {}


def table(base_class: type[Class]) -> dict[str, type[Class]]:
    """The registry itself of a base class: name in lower case -> class."""
    return _tables.setdefault(base_class, {})


def get_registry(base_class: type[Class]) -> dict[str, type[Class]]:
    """A copy of the registry of a base class: name in lower case -> class."""
    return dict(table(base_class))


def get_register_func(base_class: type, nickname: str) -> Any:
    """A function register(klass, name=None) -> klass, for subclasses of base_class; a decorator.

    nickname: what a class is called in errors and JSON ("metric").
    """

    def register(klass, name=None):
        if not issubclass(klass, base_class):
            raise InvalidType(
                f"{nickname}.register: the class must derive from {base_class.__name__}, "
                f"got {klass.__name__}"
            )
        table(base_class)[(name or klass.__name__).lower()] = klass
        return klass

    register.__doc__ = f"Makes a {nickname} known by its class name in lower case, or by `name`."
    return register


def get_alias_func(base_class: type, nickname: str) -> Any:
    """A decorator factory alias(*names): further names of a class."""
    register = get_register_func(base_class, nickname)

    def alias(*aliases):
        def add(klass):
            for name in aliases:
                register(klass, name)
            return klass

        return add

    alias.__doc__ = f"Decorator: further names of a {nickname}."
    return alias


def get_create_func(base_class: type, nickname: str) -> Any:
    """A function create(name, *args, **kwargs) -> object; see its docstring."""

    def create(*args, **kwargs):
        name, args = (args[0], args[1:]) if args else (kwargs.pop(nickname, None), ())
        if isinstance(name, base_class):
            if args or kwargs:
                raise InvalidValue(f"{nickname}: is an object already and takes no arguments")
            return name
        if isinstance(name, dict):
            return create(**name)
        if not isinstance(name, str):
            raise InvalidType(f"{nickname}: must be a name, got {name!r}")
        if name.startswith("["):
            name, kwargs = parse_json(name, f"{nickname}: its JSON")
        elif name.startswith("{"):
            return create(**parse_json(name, f"{nickname}: its JSON"))
        known: dict[str, Any] = table(base_class)
        klass = known.get(name.lower())
        if klass is None:
            rule = f"{nickname}: {name!r} is not registered"
            raise MissingKey(compose(rule, fix=did_you_mean(name, known)))
        return klass(*args, **kwargs)

    create.__doc__ = (
        f"A {nickname} from its name, from JSON text '[name, {{arguments}}]' or "
        f"'{{\"{nickname}\": name, ...}}', or a {nickname} as it is. Raises MXNetError."
    )
    return create
