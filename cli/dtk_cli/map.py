"""`dtk-smi map`: every name of each device, and which it is for a program started from here."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator

import dtk
from dtk import visibility
from dtk_cli.exit import Exit
from dtk_cli.grid import Cell, Column, render
from dtk_cli.look import mention, take, verdict
from dtk_cli.options import KEY_HELP, Parser, add_machine
from dtk_cli.output import page, write
from dtk_cli.text import DIM, GREEN, YELLOW, Screen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

EPILOG = f"""\
HIP is the number of a device for HIP where no variable hides any; Now is the one
it has for a program that is started from this shell, where ROCR_, HIP_ and
CUDA_VISIBLE_DEVICES have done their work.

{KEY_HELP}"""


def build_parser() -> Parser:
    """The grammar."""
    parser = Parser("dtk-smi map", "Show every name of each device, and which HIP sees now.", EPILOG)
    parser.add_argument("--json", action="store_true", help="the same as a JSON object")
    add_machine(parser)
    return parser


def run(args: argparse.Namespace) -> Exit:
    """Print it. What a variable does to a device depends on all the others, also on those not asked for."""
    asked = {device.uuid for device in take(args, fast=False, library_metrics=()).devices} if args.keys else None
    args.keys = []
    snapshot = take(args, fast=False, library_metrics=())
    code = Exit.OK if snapshot.devices else verdict(snapshot)  # a card that hangs has its names too
    agents = sorted((device for device in snapshot.devices if device.hip_index is not None), key=_hip_index)
    view = visibility.hip([visibility.rocr_uuid(device.uuid) for device in agents], os.environ)
    now = {agents[agent].uuid: number for number, agent in enumerate(view.agents)}
    devices = [device for device in snapshot.devices if asked is None or device.uuid in asked]
    if args.json:
        import json

        found = {"devices": [_object(device, now.get(device.uuid)) for device in devices], "notes": notes(view, agents)}
        write(json.dumps(found, indent=2) + "\n")
        mention(snapshot)
    elif devices:
        screen = Screen(sys.stdout)
        write(page(list(_lines(devices, now, notes(view, agents), screen)), screen, None))
        mention(snapshot)
    return code


def notes(view: visibility.View, agents: list[dtk.Reading]) -> list[str]:
    """What the variables do, in words."""
    found = list(view.notes)
    if not any(variable in os.environ for variable in visibility.VARIABLES[:3]):
        found.append("no variable hides devices: neither ROCR_, HIP_ nor CUDA_VISIBLE_DEVICES is set")
    if ordinal := os.environ.get("GPU_DEVICE_ORDINAL"):
        seen = visibility.opencl([visibility.rocr_uuid(device.uuid) for device in agents], os.environ).agents
        indices = " ".join(str(agents[agent].index) for agent in seen) or "none"
        found.append(
            f"GPU_DEVICE_ORDINAL={visibility.shown(ordinal)}: OpenCL programs see GPU {indices}; "
            "of HIP ones it is not defined"
        )
    return found


def _hip_index(device: dtk.Reading) -> int:
    return device.hip_index or 0


def _object(device: dtk.Reading, now: int | None) -> dict[str, Any]:
    names = ("index", "uuid", "bdf", "serial", "partition", "drm_card", "drm_render", "kfd_node", "gpu_id", "hip_index")
    return {name: getattr(device, name) for name in names} | {"card": device.card_index, "visible_index": now}


def _lines(devices: list[dtk.Reading], now: dict[str, int], notes: list[str], screen: Screen) -> Iterator[str]:
    domain = any(not device.bdf.startswith("0000:") for device in devices)

    def number(value: int | None) -> Cell:
        return ("-", DIM) if value is None else (str(value), "")

    def row(device: dtk.Reading) -> list[Cell]:
        if device.hip_index is None:
            seen = ("-", DIM)
        else:
            seen = (str(now[device.uuid]), GREEN) if device.uuid in now else ("hidden", YELLOW)
        return [
            (str(device.index), ""),
            (device.uuid, ""),
            (device.bdf if domain else device.bdf.removeprefix("0000:"), ""),
            number(device.drm_card),
            number(device.drm_render),
            number(device.kfd_node),
            number(device.gpu_id),
            number(device.hip_index),
            seen,
        ]

    columns = [Column("GPU", ">"), Column("UUID"), Column("Bus id")]
    columns += [Column(title, ">") for title in ("card", "renderD", "kfd", "gpu_id", "HIP", "Now")]
    found, _ = render(columns, [row(device) for device in devices], screen)
    yield from found
    yield ""
    yield from map(screen.text, notes)
