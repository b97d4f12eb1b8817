"""Options: flags, environment variables and a TOML file with the same names, in this order of precedence.

--collect.interval 2     DTK_SMI_EXPORTER_COLLECT_INTERVAL=2     [collect]
interval = 2
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

import dtk

from .listeners import split_address
from .yamlfile import content_of

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["OPTIONS", "Config", "Option", "build_parser", "load"]

PREFIX = "DTK_SMI_EXPORTER_"
SECONDS_MAX = 3600.0


def _addresses(text: str) -> tuple[str, ...]:
    found = tuple(part.strip() for part in text.split(","))
    for address in found:
        split_address(address)
    return found


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.01 <= value <= SECONDS_MAX:
        raise ValueError(f"{text!r} is no number of seconds from 0.01 to {SECONDS_MAX:.0f}")
    return value


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < int(text) <= 100_000:
        raise ValueError(f"{text!r} is no count from 1 to 100000")
    return int(text)


def _flag(text: str) -> bool:
    if text.lower() not in ("true", "false", "1", "0", "yes", "no"):
        raise ValueError(f"{text!r} is neither true nor false")
    return text.lower() in ("true", "1", "yes")


def _path(text: str) -> str:
    if not text or "\0" in text:
        raise ValueError("an empty name")
    return text


def _one_of(*choices: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in choices:
            raise ValueError(f"{text!r} is none of {', '.join(choices)}")
        return text

    return parse


def _option(name: str, default: Any, parse: Callable[[str], Any], metavar: str, text: str) -> Any:
    """A field of Config, with what the three places need to know of it. metavar: "" for a switch."""
    return field(default=default, metadata={"name": name, "parse": parse, "metavar": metavar, "help": text})


@dataclass(frozen=True)
class Config:
    """What dtk-exporter is to do."""

    web_listen_address: tuple[str, ...] = _option(
        "web.listen-address",
        ("127.0.0.1:9497",),
        _addresses,
        "ADDRESS",
        "HOST:PORT to listen on; several with commas",
    )
    web_config_file: str | None = _option(
        "web.config.file", None, _path, "FILE", "TLS and users, a web.config.yml as Prometheus' exporters take it"
    )
    collect_interval: float = _option("collect.interval", 1.0, _seconds, "SECONDS", "between looks at the cards")
    collect_slow_interval: float = _option(
        "collect.slow-interval", 15.0, _seconds, "SECONDS", "between looks at errors, pages and limits"
    )
    collect_deadline: float = _option("collect.deadline", 1.0, _seconds, "SECONDS", "that a card may take to answer")
    collect_processes: bool = _option("collect.processes", False, _flag, "", "families of single processes too")
    collect_processes_max: int = _option("collect.processes-max", 100, _count, "COUNT", "at most so many of them")
    collect_pod_resources: str | None = _option(
        "collect.pod-resources", None, _path, "SOCKET", "ask the kubelet there which pod has which card"
    )
    collect_backend: str | None = _option(
        "collect.backend",
        None,
        _one_of("auto", "kernel", "rsmi"),
        "NAME",
        "auto, kernel or rsmi: whether to ask the vendor's library; default DTK_SMI_BACKEND, else auto",
    )
    compat: str | None = _option(
        "compat",
        None,
        _one_of("dcu", "hcu"),
        "NAME",
        "dcu or hcu: names of their dashboards on /metrics/compat",
    )
    root: str | None = _option("root", None, _path, "DIR", "read the machine below DIR (or: DTK_SMI_ROOT)")
    demo: bool = _option("demo", False, _flag, "", "a simulated node of eight cards")


class Option(NamedTuple):
    """A row of Config. name: of the flag, without --. field: of Config."""

    name: str
    field: str
    parse: Callable[[str], Any]
    metavar: str
    default: Any
    help: str

    @property
    def variable(self) -> str:
        """Of the environment."""
        return PREFIX + self.name.upper().replace(".", "_").replace("-", "_")


OPTIONS = tuple(
    Option(
        row.metadata["name"],
        row.name,
        row.metadata["parse"],
        row.metadata["metavar"],
        row.default,
        row.metadata["help"],
    )
    for row in fields(Config)
)

EPILOG = f"""\
Every option may stand in the environment
({PREFIX}COLLECT_INTERVAL=2) or in the file of --config.file
(TOML: [collect] interval = 2). A flag goes before the environment, and that
before the file. SIGHUP reads them again.

It serves / /metrics /metrics/compat /v1/devices /-/healthy /-/ready.

exit status: 0 ended by SIGTERM or SIGINT; 1 internal error, or the address is
taken; 2 bad usage or configuration; 3 not possible here; 4 no permission;
11 --once, and no look came by the deadline; 12 library problem.
"""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        """Exit 2, in two lines."""
        print(f"dtk-exporter: {message}\n  'dtk-exporter --help' shows what there is", file=sys.stderr)
        sys.exit(2)


def build_parser() -> argparse.ArgumentParser:
    """The grammar of the command line. What was not given is not in its result."""
    parser = _Parser(
        prog="dtk-exporter",
        description="Serve the cards of this machine to Prometheus.",
        epilog=EPILOG,
        formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, max_help_position=34, width=80),
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    for option in OPTIONS:
        text = _help(option)
        if option.metavar:
            parser.add_argument(
                f"--{option.name}", dest=option.name, metavar=option.metavar, type=_typed(option), help=text
            )
        else:
            parser.add_argument(f"--{option.name}", dest=option.name, action="store_true", help=text)
    parser.add_argument("--config.file", dest="config.file", metavar="FILE", help="read options from this TOML file")
    parser.add_argument("--once", action="store_true", help="check the configuration, print /metrics, and end")
    parser.add_argument("--version", action="version", version=f"dtk-exporter {dtk.__version__}", help="the version")
    return parser


def _help(option: Option) -> str:
    default = option.default
    if not default:
        return option.help
    shown = ",".join(default) if isinstance(default, tuple) else f"{default:g}"
    return f"{option.help}; default {shown}"


def _typed(option: Option) -> Callable[[str], Any]:
    def parse(text: str) -> Any:
        try:
            return option.parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parse


def load(given: Mapping[str, Any], environment: Mapping[str, str]) -> Config:
    """The configuration of the flags that were given, the environment, and the file that one of them names.

    Raises InvalidArgument, which says where the mistake is.
    """
    path = given.get("config.file") or environment.get(f"{PREFIX}CONFIG_FILE")
    values = _from_file(path) if path else {}
    for option in OPTIONS:
        if text := environment.get(option.variable):
            values[option.field] = _parsed(option, text, option.variable)
    known = {option.variable for option in OPTIONS} | {f"{PREFIX}CONFIG_FILE"}
    for name in environment:
        if name.startswith(PREFIX) and name not in known:
            raise dtk.InvalidArgument(f"{name} names no option", hint="'dtk-exporter --help' shows what there is")
    values |= {option.field: given[option.name] for option in OPTIONS if option.name in given}
    if values.get("root") and values.get("demo"):
        raise dtk.InvalidArgument("--root and --demo are two machines", hint="give one of them")
    return Config(**values)


def _from_file(path: str) -> dict[str, Any]:
    content = content_of(path)
    try:
        tables = tomllib.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:  # the last of brackets in brackets
        raise dtk.InvalidArgument(f"no TOML: {error}", operation="read the configuration", path=path) from error
    names = {option.name: option for option in OPTIONS}
    found: dict[str, Any] = {}
    for name, value in _flat("", tables):
        if name not in names:
            hint = f"there are {', '.join(names)}"
            raise dtk.InvalidArgument(f"no option {name!r}", operation="read the configuration", path=path, hint=hint)
        text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
        if names[name].parse is _path and text:
            text = os.path.join(os.path.dirname(os.path.abspath(path)), text)
        found[names[name].field] = _parsed(names[name], text, f"{path}: {name}")
    return found


def _flat(prefix: str, table: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Names with dots, and values: [web] config.file and [web.config] file are the same."""
    rows: list[tuple[str, Any]] = []
    for key, value in table.items():
        rows += _flat(f"{prefix}{key}.", value) if isinstance(value, dict) else [(prefix + key, value)]
    return rows


def _parsed(option: Option, text: str, place: str) -> Any:
    try:
        return option.parse(text)
    except ValueError as error:
        raise dtk.InvalidArgument(f"{place}: {error}", operation="read the configuration") from None


def parse(arguments: Sequence[str], environment: Mapping[str, str]) -> tuple[dict[str, Any], Config]:
    """The flags that were given, and the configuration."""
    given = vars(build_parser().parse_args(arguments))
    return given, load(given, environment)
