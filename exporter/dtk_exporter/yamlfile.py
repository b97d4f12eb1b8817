"""A YAML file, read key by key: what is wrong with it is said with the file and the key, never by a traceback."""

from __future__ import annotations

import difflib
import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

import dtk

LARGEST = 1 << 20  # bytes of a file that people write by hand
TRUE, FALSE = {"true", "yes", "on", "y"}, {"false", "no", "off", "n"}  # YAML 1.1, in any case
NOTHING = {"", "~", "null"}


class _Loader(yaml.BaseLoader):
    """Every scalar is a string: a user called 0123 or `no` stays what was written. A key given twice is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        made = super().construct_mapping(node, deep)
        if len(made) < len(node.value):
            names = [key.value for key, _ in node.value]
            twice = next(name for name in names if names.count(name) > 1)
            raise yaml.constructor.ConstructorError(None, None, f"{twice!r} is given twice", node.start_mark)
        return made


class Section:
    """A mapping below the key `name` of a file ("" is the whole file), in which only `known` keys may be.

    With known=None the keys are the user's own.
    """

    def __init__(self, path: str, name: str, value: object, known: Sequence[str] | None) -> None:
        self.path, self.name = path, name
        if isinstance(value, str) and value.lower() in NOTHING:
            value = {}
        if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
            raise self.error("", f"expected `key: value` lines{f' below {name}' if name else ''}")
        self.values: Mapping[str, object] = value
        if known is not None:
            for key in value:
                if key not in known:
                    near = difflib.get_close_matches(key, known, 1)
                    hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"
                    raise self.error(key, "no such key", hint)

    def error(self, key: str, message: str, hint: str | None = None) -> dtk.InvalidArgument:
        """What to raise when the value of a key cannot be meant."""
        where = ".".join(part for part in (self.name, key) if part)
        return dtk.InvalidArgument(f"{where}: {message}" if where else message, path=self.path, hint=hint)

    def section(self, key: str, known: Sequence[str] | None) -> Section:
        """The mapping below a key; an empty one where the key is missing."""
        return Section(self.path, f"{self.name}.{key}" if self.name else key, self.values.get(key, ""), known)

    def text(self, key: str, default: str = "") -> str:
        """A string; `default` where the key is missing."""
        value = self.values.get(key, default)
        if not isinstance(value, str):
            raise self.error(key, "expected one value, not a list or a mapping")
        return value

    def texts(self, key: str) -> list[str]:
        """A list of strings, empty where the key is missing."""
        value = self.values.get(key, [])
        if isinstance(value, str) and value.lower() in NOTHING:
            return []
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.error(key, "expected a list")
        return list(value)

    def flag(self, key: str, default: bool) -> bool:
        """True or false."""
        value = self.text(key, str(default)).lower()
        if value not in TRUE | FALSE:
            raise self.error(key, f"{value!r} is neither true nor false")
        return value in TRUE


def content_of(path: str) -> bytes:
    """A regular file's bytes. Never waits, as a pipe would make it."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise dtk.InvalidArgument("is not a regular file", path=path)
        with open(path, "rb") as file:
            content = file.read(LARGEST + 1)
    except OSError as error:
        kind = dtk.PermissionDenied if isinstance(error, PermissionError) else dtk.InvalidArgument
        raise kind(error.strerror or str(error), operation="read", path=path) from error
    if len(content) > LARGEST:
        raise dtk.InvalidArgument("is larger than 1 MiB", path=path)
    return content


def read_yaml(path: str, known: Sequence[str]) -> Section:
    """The mapping that a YAML file is."""
    content = content_of(path)
    try:
        value = yaml.load(content, _Loader)
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise dtk.InvalidArgument(f"{line}not YAML: {error.problem}", path=path) from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise dtk.InvalidArgument(f"not YAML: {' '.join(str(error).split())}", path=path) from None
    return Section(path, "", "" if value is None else value, known)


def beside(path: str, name: str) -> str:
    """A file that the file at `path` names: a relative name is relative to that file's directory."""
    return str(Path(path).parent / name)
