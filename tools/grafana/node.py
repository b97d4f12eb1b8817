"""The dashboard of one node."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard

from .about import About, about, counter, families, label, own
from .build import (
    CARD,
    STATES,
    Panel,
    Query,
    Row,
    bars,
    board,
    expressions,
    grid,
    joined,
    lines,
    number,
    only,
    states,
    variable,
)
from .promql import Scope, renamed

NODE = Scope('instance="$instance"', 'uuid=~"$device|$card"')

# What a process_… family of client libraries says of dtk-exporter, and not of another exporter of the same instance.
OURS = f"and on (job, instance) {NODE.own('dtk_build_info')}"

WHO = {"source": "by", "user": "user", "job_id": "job", "step_id": "step"}
WHERE = {"namespace": "namespace", "pod": "pod", "pod_uid": "pod's uid", "container": "container"}


def per_card(text: About, expression: str, width: int = 12, empty: str = "") -> Panel:
    """A line for each card."""
    return lines(text, Query(NODE.named(expression), CARD), width=width, empty=empty)


def overview() -> Row:
    """What each card is, and how it is."""
    vram = about("memory_used_bytes", "vram").unit
    columns = {
        "index": "index",
        "model": "model",
        "pci_address": "PCI address",
        "partition": "partition",
        "state": "state",
        "Value #C": "asleep",
        "Value #D": "utilization",
        "Value #E": "memory used",
        "Value #F": "memory",
        "Value #G": "hottest sensor",
        "Value #H": "power",
        "Value #I": "processes",
        "uuid": "uuid",
    }
    units = {
        "state": "state",
        "asleep": "bool_yes_no",
        "utilization": about("utilization_ratio").unit,
        "memory used": vram,
        "memory": vram,
        "hottest sensor": about("temperature_celsius").unit,
        "power": about("power_watts").unit,
    }
    values = (
        NODE.of("asleep"),
        NODE.of("utilization_ratio", 'engine="gpu"'),
        NODE.of("memory_used_bytes", 'kind="vram"'),
        NODE.of("memory_total_bytes", 'kind="vram"'),
        NODE.per_device(NODE.of("temperature_celsius")),
        NODE.per_device(NODE.of("power_watts")),
        NODE.of("processes"),
    )
    devices = f"and on (instance, uuid) {NODE.devices()}"
    queries = (
        only(NODE.of("info", 'index!=""'), "uuid", "index", "model", "pci_address", "partition"),
        only(f"{NODE.of('state')} == 1 {devices}", "uuid", "state"),
        *(only(f"{value} {devices}", "uuid") for value in values),
    )
    text = About("Cards", "Each device and its state. A partition shows the temperature and power of its card.")
    return Row("Cards", [joined(text, "uuid", queries, columns, units)])


def events() -> Row:
    """What happened."""
    numbers = " or ".join(
        NODE.of("state", f'state="{name}"') + f" * {code}" for name, (code, _) in STATES.items() if code
    )
    happened = NODE.increase("events_total", window="$__range")
    return Row(
        "Events",
        [
            states(
                own("dtk_device_state", "State"),
                Query(NODE.named(f"sum by (instance, uuid) ({numbers})"), CARD),
            ),
            bars(
                own("dtk_device_events_total", "Events"),
                Query(f"sum by (type) ({NODE.increase('events_total')})", "{{type}}"),
            ),
            grid(
                About("Events by card", "In the time shown."),
                NODE.named(f"(round({happened}) > 0)"),
                {"index": "index", "model": "model", "type": "event", "Value": "times"},
                empty="Nothing happened.",
            ),
            per_card(
                own("dtk_device_up", "Up"),
                NODE.of("up"),
            ),
            lines(
                own("dtk_device_read_errors", "Values that cannot be read"),
                Query(NODE.named(NODE.of("read_errors")), f"{CARD} {{{{reason}}}}"),
            ),
        ],
    )


def use() -> list[Row]:
    """Utilization and memory."""
    share = about("memory_used_bytes", "vram").but("Memory used, share of the total", "percentunit")
    used, total = (NODE.of(family, 'kind="vram"') for family in ("memory_used_bytes", "memory_total_bytes"))
    return [
        Row(
            "Utilization",
            [
                per_card(about("utilization_ratio", engine), NODE.of("utilization_ratio", f'engine="{engine}"'))
                for engine in ("gpu", "memory")
            ],
        ),
        Row(
            "Memory",
            [
                lines(
                    about("memory_used_bytes", "vram"),
                    Query(NODE.named(used), CARD),
                    Query(NODE.named(total), f"{CARD} total", limit=True),
                    width=8,
                ),
                per_card(share, f"({used} / on (instance, uuid) {total})", width=8),
                per_card(
                    own("dtk_device_memory_unattributed_bytes", "Memory of no known process", "bytes"),
                    NODE.of("memory_unattributed_bytes"),
                    width=8,
                ),
            ],
        ),
    ]


def heat_and_power() -> list[Row]:
    """Temperature, power and clocks, each with its limits."""
    temperature, critical = about("temperature_celsius"), about("temperature_critical_celsius")
    celsius, limits = NODE.of("temperature_celsius"), NODE.of("temperature_critical_celsius")
    power, limit = about("power_watts"), about("power_limit_watts")
    energy = about("energy_joules_total").but("Energy per hour", "watth")
    clocks = [
        lines(
            about("clock_hertz", domain),
            Query(NODE.named(NODE.of("clock_hertz", f'domain="{domain}"')), CARD),
            Query(NODE.named(NODE.of("clock_max_hertz", f'domain="{domain}"')), f"{CARD} max", limit=True),
            width=8,
        )
        for domain in ("gfx", "memory")
    ]
    return [
        Row(
            "Temperature",
            [
                per_card(
                    temperature.but("Hottest sensor of each card"), f"max by (instance, uuid) ({celsius})", width=8
                ),
                lines(
                    temperature.but("Hottest card, by sensor"),
                    Query(f"max by (sensor) ({celsius})", "{{sensor}}"),
                    Query(f"min by (sensor) ({limits})", "{{sensor}} critical", limit=True),
                    width=8,
                ),
                per_card(
                    critical.but("Degrees below the critical temperature"),
                    f"min by (instance, uuid) ({limits} - on (instance, uuid, sensor) {celsius})",
                    width=8,
                ),
            ],
        ),
        Row(
            "Power",
            [
                lines(
                    power,
                    Query(NODE.named(NODE.of("power_watts")), CARD),
                    Query(NODE.named(NODE.of("power_limit_watts")), f"{CARD} limit", limit=True),
                    width=8,
                ),
                per_card(
                    limit.but("Power, share of the limit", "percentunit"),
                    f"({NODE.of('power_watts')} / on (instance, uuid) {NODE.of('power_limit_watts')})",
                    width=8,
                ),
                bars(
                    energy,
                    Query(NODE.named(f"{NODE.increase('energy_joules_total', window='1h')} / 3600"), CARD),
                    width=8,
                    every="1h",
                ),
            ],
        ),
        Row("Clocks", [*clocks, per_card(about("voltage_volts", "gfx"), NODE.of("voltage_volts", 'rail="gfx"'), 8)]),
    ]


def health() -> list[Row]:
    """Throttling, memory errors and links."""
    ecc, active = about("ecc_errors_total"), about("throttle_active")
    rate = NODE.rate("throttle_seconds_total")
    link = about("pcie_link_speed_gigatransfers").but("PCIe link, share of what the card can", "percentunit")
    speed, width = NODE.of("pcie_link_speed_gigatransfers"), NODE.of("pcie_link_width_lanes")
    most = (NODE.of("pcie_link_speed_max_gigatransfers"), NODE.of("pcie_link_width_max_lanes"))
    return [
        Row(
            "Throttling",
            [
                lines(
                    own("dtk_device_throttle_seconds_total", "Cards held back, by reason"),
                    Query(f"sum by (reason) ({rate})", "{{reason}}"),
                    width=8,
                    stacked=True,
                ),
                per_card(
                    own("dtk_device_throttle_seconds_total", "Share of the time held back", "percentunit"),
                    f"max by (instance, uuid) ({rate})",
                    width=8,
                ),
                grid(
                    active.but("Held back now"),
                    NODE.named(NODE.of("throttle_active")),
                    {"index": "index", "model": "model", "reason": "reason"},
                    width=8,
                    empty="No card is held back.",
                ),
            ],
        ),
        Row(
            "Memory errors",
            [
                bars(
                    ecc,
                    Query(NODE.named(NODE.increase("ecc_errors_total")), f"{CARD} {{{{severity}}}}"),
                    width=8,
                ),
                grid(
                    own("dtk_device_ecc_block_errors_total", "ECC errors by block"),
                    NODE.named(f"({NODE.of('ecc_block_errors_total')} > 0)"),
                    {"index": "index", "model": "model", "block": "block", "severity": "severity", "Value": "errors"},
                    width=8,
                    empty="No block counted an error.",
                ),
                lines(
                    about("retired_pages"),
                    Query(NODE.named(NODE.of("retired_pages")), f"{CARD} {{{{status}}}}"),
                    width=8,
                ),
            ],
        ),
        Row(
            "Links",
            [
                per_card(
                    link,
                    f"({speed} * on (instance, uuid) {width}\n/ on (instance, uuid) {most[0]}\n"
                    f"/ on (instance, uuid) {most[1]})",
                    width=8,
                ),
                per_card(about("pcie_replays_total").rate(), NODE.rate("pcie_replays_total"), width=8),
                lines(
                    about("link_bandwidth_bytes_per_second"),
                    Query(NODE.named(NODE.of("link_bandwidth_bytes_per_second")), f"{CARD} {{{{direction}}}}"),
                    width=8,
                    empty="No card of this node has it.",
                ),
            ],
        ),
    ]


def holders() -> Row:
    """Who has the cards."""
    process = {
        "pid": "pid",
        "name": "name",
        "user": "user",
        "job_id": "job",
        "pod_uid": "pod's uid",
        "container": "container",
    }
    group = ", ".join(label for label in process if label != "pid")
    memory = NODE.by_card("dtk_process_memory_used_bytes")
    info = renamed(NODE.own("dtk_process_info"), container="exported_container")
    return Row(
        "Processes and allocation",
        [
            grid(
                own("dtk_device_allocation_info", "Who has which card"),
                NODE.named(NODE.allocation()),
                {"index": "index", "model": "model", **WHO, **WHERE},
                empty="No card is allocated.",
            ),
            per_card(own("dtk_device_processes", "Processes"), NODE.of("processes")),
            grid(
                own("dtk_process_memory_used_bytes", "Memory by process", "bytes"),
                NODE.named(f"{memory}\n* on (instance, pid) group_left ({group})\n{info}"),
                {"index": "index", "model": "model", **process, "Value": "memory"},
                {"memory": "bytes"},
                width=24,
                empty="No process, or dtk-exporter runs without --collect.processes.",
            ),
        ],
    )


def exporter() -> Row:
    """How dtk-exporter itself is."""

    def ours(family: str) -> str:
        return f"{NODE.own(family)} {OURS}"

    processor = f"rate({NODE.own('process_cpu_seconds_total')}[$__rate_interval]) {OURS}"
    reader = f"rate({NODE.own('dtk_exporter_reader_cpu_seconds_total')}[$__rate_interval])"
    age = f"time() - {NODE.own('dtk_exporter_last_snapshot_timestamp_seconds')}"
    errors = f"sum by (source) (increase({NODE.own('dtk_collect_errors_total')}[$__rate_interval]))"
    looks = f"rate({NODE.own('dtk_exporter_snapshots_total')}[$__rate_interval])"
    requests = f"sum by (code) (rate({NODE.own('dtk_exporter_http_requests_total')}[$__rate_interval]))"
    rejected = f"sum by (reason) (increase({NODE.own('dtk_exporter_http_rejected_total')}[$__rate_interval]))"
    changed = "dtk_exporter_config_last_reload_success_timestamp_seconds"
    return Row(
        "The exporter",
        [
            number(
                own("dtk_build_info", "Version"),
                NODE.own("dtk_build_info"),
                legend="{{version}} on Python {{python_version}}",
                width=6,
            ),
            number(
                own("dtk_exporter_simulated", "Simulated", "bool_yes_no"),
                NODE.own("dtk_exporter_simulated"),
                width=6,
                bad=1,
            ),
            number(
                own("dtk_exporter_config_last_reload_successful", "Configuration good", "bool_yes_no"),
                NODE.own("dtk_exporter_config_last_reload_successful"),
                width=6,
            ),
            number(
                own(changed, "Configuration read", "dateTimeFromNow"),
                f"{NODE.own(changed)} * 1000",
                width=6,
            ),
            bars(
                own("dtk_collect_errors_total", "Errors"),
                Query(errors, "{{source}}"),
                width=8,
            ),
            lines(
                About("Age of the last snapshot", "More than a few intervals: it collects no more.", "s"),
                Query(age, "last snapshot"),
                width=8,
            ),
            per_card(
                own("dtk_device_sample_age_seconds", "Age of the values", "s"), NODE.of("sample_age_seconds"), width=8
            ),
            lines(
                About("Processor", "Share of a core.", "percentunit"),
                Query(processor, "dtk-exporter"),
                Query(reader, "dtk-reader"),
                width=8,
            ),
            lines(
                About("Memory", "Resident.", "bytes"),
                Query(ours("process_resident_memory_bytes"), "dtk-exporter"),
                Query(NODE.own("dtk_exporter_reader_resident_memory_bytes"), "dtk-reader"),
                width=8,
            ),
            per_card(
                own("dtk_collect_duration_seconds", "Time to read a card", "s"),
                NODE.by_card("dtk_collect_duration_seconds"),
                width=8,
            ),
            lines(
                own("dtk_exporter_snapshots_total", "Looks per second", "cps"),
                Query(looks, "looks"),
                width=8,
            ),
            lines(
                own("dtk_exporter_render_seconds", "Time to make a page", "s"),
                Query(NODE.own("dtk_exporter_render_seconds"), "render"),
                width=8,
            ),
            lines(
                own("dtk_exporter_processes_dropped", "Processes left out"),
                Query(NODE.own("dtk_exporter_processes_dropped"), "processes"),
                width=8,
                empty="dtk-exporter runs without --collect.processes.",
            ),
            lines(
                own("dtk_exporter_http_requests_total", "Answers per second", "cps"),
                Query(requests, "{{code}}"),
                width=8,
                stacked=True,
            ),
            bars(
                own("dtk_exporter_http_rejected_total", "Connections without a request"),
                Query(rejected, "{{reason}}"),
                width=8,
            ),
        ],
        folded=True,
    )


def others(shown: str) -> Row:
    """The families of the catalogue that no other panel shows: a new one is seen without anybody's work."""
    panels: list[Panel] = []
    for family in families():
        if f"dtk_device_{family}{{" in shown:
            continue
        text, value = about(family), NODE.of(family)
        if counter(family):
            text, value = text.rate(), NODE.rate(family)
        legend = f"{CARD} {{{{{label(family)}}}}}" if label(family) else CARD
        panels.append(lines(text, Query(NODE.named(value), legend), width=8, empty="No card of this node has it."))
    return Row("Other readings", panels, folded=True)


def node() -> dashboard.Dashboard:
    """The dashboard."""
    chosen = 'dtk_device_info{instance="$instance", index!=""}'
    title = f'query_result(label_join({chosen}, "device", " ", "index", "model"))'
    variables = [
        variable("instance", "Node", "label_values(dtk_build_info, instance)"),
        variable("device", "Card", title, regex='/device="(?<text>[^"]*)".*uuid="(?<value>[^"]*)"/', many=True),
        # The sensors of a partition are its card's.
        variable(
            "card",
            "Physical card",
            'label_values(dtk_device_info{instance="$instance", uuid=~"$device"}, card)',
            many=True,
            hidden=True,
        ),
    ]
    rows = [overview(), events(), *use(), *heat_and_power(), *health(), holders(), exporter()]
    shown = "".join(str(expression) for row in rows for expression in expressions(row))
    return board("dtk-node", "DTK: a node", "The cards of one node.", variables, [*rows, others(shown)])
