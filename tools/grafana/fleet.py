"""The dashboard of all nodes."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard

from .about import About, about, own
from .build import NODE_CARD, Query, Row, bars, board, grid, heat, lines, number, top, variable
from .node import WHERE, WHO
from .promql import Scope, renamed

FLEET = Scope('instance=~"$instance"')

CARD = {"instance": "node", "index": "index", "model": "model"}

GPU = FLEET.of("utilization_ratio", 'engine="gpu"')
VRAM = 'kind="vram"'
UNWELL = FLEET.of("state", 'state!="ok"')
POWER = FLEET.of("power_watts")
TEMPERATURE = FLEET.of("temperature_celsius")

# A card and its partitions have the same memory and work: sums and means are of cards.
CARDS = f"and on (instance, uuid) {FLEET.cards()}"
BUSY = f"{GPU} {CARDS}"
USED = f"{FLEET.of('memory_used_bytes', VRAM)} {CARDS}"
TOTAL = f"{FLEET.of('memory_total_bytes', VRAM)} {CARDS}"

# What somebody can use: whole cards and partitions.
DEVICES = f"and on (instance, uuid) {FLEET.devices()}"

# A device is held when a job or a pod has it or a process computes on it, and idle when it was hardly used meanwhile.
ALLOCATED = FLEET.of("allocation_info")
HELD = f"({ALLOCATED} or {FLEET.of('processes')} > 0)"
IDLE = f"(avg_over_time({GPU}[30m]) < 0.05 and on (instance, uuid) {HELD})"


def now() -> Row:
    """A few numbers."""
    memory = about("memory_used_bytes", "vram").but("Memory used", "percentunit")
    models = f"count by (model) ({FLEET.cards()})"
    return Row(
        "Now",
        [
            number(About("Nodes", "Those whose exporter answers."), f"count({FLEET.own('dtk_build_info')})"),
            number(About("Cards", "Physical ones, lost ones too."), f"count({FLEET.cards()})"),
            number(About("Not well", "Devices lost, unknown or degraded."), f"sum({UNWELL} {DEVICES})", bad=1),
            number(about("utilization_ratio", "gpu").but("Utilization"), f"avg({BUSY})"),
            number(memory, f"sum({USED}) / sum({TOTAL})"),
            number(about("power_watts").but("Power, all cards"), f"sum({POWER})"),
            number(
                About("Held", "Devices that a job, a pod or a process has."),
                f"count(group by (instance, uuid) ({HELD}))",
                empty="none",
            ),
            number(
                About("Held and idle", "Devices that somebody has and hardly used for 30 minutes."),
                f"count({IDLE})",
                bad=1,
                empty="none",
            ),
            lines(
                own("dtk_device_state", "Devices by state"),
                Query(f"sum by (state) ({FLEET.of('state')} {DEVICES})", "{{state}}"),
                width=16,
                stacked=True,
            ),
            top(About("Cards by model", "Physical ones, lost ones too."), Query(f"sort_desc({models})", "{{model}}")),
        ],
    )


def attention() -> Row:
    """What somebody should look at."""
    silent = f"(time() - {FLEET.of('last_success_timestamp_seconds')} and on (instance, uuid) {FLEET.of('up')} == 0)"
    build = FLEET.own("dtk_build_info")
    gone = f"group by (job, instance) (last_over_time({build}[$__range])) unless on (job, instance) {build}"
    events = f"sum by (instance, type) ({FLEET.increase('events_total', window='$__range')})"
    held_back = f"(max by (instance, uuid) ({FLEET.rate('throttle_seconds_total', window='$__range')}) > 0.01)"
    errors = FLEET.increase("ecc_errors_total", 'severity!="correctable"', window="$__range")
    return Row(
        "Attention",
        [
            grid(
                own("dtk_device_state", "Devices not well"),
                FLEET.named(f"({UNWELL} == 1)", "pci_address"),
                {**CARD, "pci_address": "PCI address", "state": "state"},
                {"state": "state"},
                width=8,
                empty="Every device is well.",
            ),
            grid(
                About("Devices that do not answer", "And since when their last values are."),
                FLEET.named(silent),
                {**CARD, "Value": "for"},
                {"for": "s"},
                width=8,
                empty="Every device answers.",
            ),
            grid(
                About("Nodes that do not answer", "Their exporter did, in the time shown."),
                gone,
                {"instance": "node", "job": "scraped as"},
                width=8,
                empty="Every node answers.",
            ),
            grid(
                own("dtk_device_events_total", "Events"),
                f"round({events}) > 0",
                {"instance": "node", "type": "event", "Value": "times"},
                width=8,
                empty="Nothing happened.",
            ),
            grid(
                own("dtk_device_throttle_seconds_total", "Devices held back, share of the time shown"),
                FLEET.named(held_back),
                {**CARD, "Value": "share"},
                {"share": "percentunit"},
                width=8,
                empty="No card was held back.",
            ),
            grid(
                about("ecc_errors_total").but("Memory errors that were not corrected"),
                FLEET.named(f"(round({errors}) > 0)"),
                {**CARD, "severity": "severity", "Value": "errors"},
                width=8,
                empty="No such error was counted.",
            ),
        ],
    )


def use() -> Row:
    """How busy the nodes are."""
    memory = about("memory_used_bytes", "vram").but("Memory used by node", "percentunit")
    share = f"sum by (instance) ({USED}) / sum by (instance) ({TOTAL})"
    gpu = about("utilization_ratio", "gpu")
    return Row(
        "Utilization and memory",
        [
            heat(gpu.but("Utilization by node"), Query(f"avg by (instance) ({BUSY})", "{{instance}}")),
            lines(gpu.but("Utilization by model"), Query(f"avg by (model) ({FLEET.named(f'({BUSY})')})", "{{model}}")),
            lines(memory, Query(share, "{{instance}}")),
        ],
    )


def heat_and_power() -> Row:
    """The hottest, and what it costs."""
    limits = FLEET.of("temperature_critical_celsius")
    hottest = f"topk(10, max by (instance, uuid) ({TEMPERATURE}))"
    room = f"min by (instance, uuid) ({limits} - on (instance, uuid, sensor) {TEMPERATURE})"
    energy = FLEET.increase("energy_joules_total", window="1d")
    return Row(
        "Temperature and power",
        [
            top(
                about("temperature_celsius").but("Hottest cards, by their hottest sensor"),
                Query(f"sort_desc({FLEET.named(hottest)})", NODE_CARD),
            ),
            top(
                about("temperature_critical_celsius").but("Closest to a critical temperature, degrees below it"),
                Query(f"sort({FLEET.named(f'bottomk(10, {room})')})", NODE_CARD),
                low_is_bad=True,
            ),
            top(
                about("power_watts").but("Cards that draw most power"),
                Query(f"sort_desc({FLEET.named(f'topk(10, {POWER})')})", NODE_CARD),
            ),
            lines(
                about("power_watts").but("Power by node"),
                Query(f"sum by (instance) ({POWER})", "{{instance}}"),
                stacked=True,
            ),
            bars(
                about("energy_joules_total").but("Energy by day, of cards that count it", "watth"),
                Query(f"sum by (instance) ({energy}) / 3600", "{{instance}}"),
                every="1d",
                over="7d",
            ),
        ],
    )


def holders() -> Row:
    """Who has the cards, and for what."""
    work = FLEET.allocation()
    who = FLEET.named(
        f"({work} * on (instance, uuid) group_left () {IDLE}\nor ({IDLE} unless on (instance, uuid) {ALLOCATED}))"
    )

    def hours(label: str, held: str) -> str:
        """Device hours by a label of an allocation: it is looked every 5 minutes."""
        looks = f"count_over_time(group by (instance, uuid, {label}) ({held})[$__range:5m])"
        return f"sort_desc(topk(20, sum by ({label}) ({looks})) / 12)"

    text = "In the time shown; two devices for an hour are two."
    jobs = FLEET.of("allocation_info", 'job_id!=""')
    users = FLEET.of("allocation_info", 'user!=""')
    pods = renamed(FLEET.of("allocation_info", 'source="k8s"', 'pod_uid=""'), namespace="exported_namespace")
    return Row(
        "Who has them",
        [
            grid(
                About("Held and idle", "Devices that somebody has and hardly used for 30 minutes: their mean use."),
                who,
                {**CARD, **WHO, **WHERE, "Value": "use"},
                {"use": about("utilization_ratio", "gpu").unit},
                width=24,
                empty="Whoever has a device uses it.",
            ),
            top(
                About("Device hours by user", text, "h"),
                Query(hours("user", users), "{{user}}"),
                width=6,
                empty="none",
            ),
            top(
                About("Device hours by job", text, "h"),
                Query(hours("job_id", jobs), "{{job_id}}"),
                width=6,
                empty="none",
            ),
            top(
                About("Device hours by namespace", text, "h"),
                Query(hours("namespace", pods), "{{namespace}}"),
                width=6,
                empty="none",
            ),
            lines(
                own("dtk_device_allocation_info", "Allocated devices"),
                Query(f"count by (source) (group by (instance, uuid, source) ({ALLOCATED}))", "{{source}}"),
                width=6,
                stacked=True,
                empty="No device is allocated.",
            ),
        ],
    )


def exporters() -> Row:
    """The exporters and drivers."""
    errors = f"sum by (instance) (increase({FLEET.own('dtk_collect_errors_total')}[$__rate_interval]))"
    age = f"time() - {FLEET.own('dtk_exporter_last_snapshot_timestamp_seconds')}"
    drivers = f"count by (driver, driver_version) (group by (instance, driver, driver_version) ({FLEET.info()}))"
    return Row(
        "Exporters and drivers",
        [
            grid(
                About("Exporters", "Nodes by version of dtk-exporter."),
                f"count by (version, python_version) ({FLEET.own('dtk_build_info')})",
                {"version": "version", "python_version": "Python", "Value": "nodes"},
                width=8,
            ),
            grid(
                About("Drivers", "Nodes by version of the driver."),
                drivers,
                {"driver": "driver", "driver_version": "version", "Value": "nodes"},
                width=8,
            ),
            grid(
                own("dtk_exporter_simulated", "Simulated nodes"),
                f"{FLEET.own('dtk_exporter_simulated')} == 1",
                {"instance": "node"},
                width=8,
                empty="Every card is real.",
            ),
            bars(own("dtk_collect_errors_total", "Errors by node"), Query(errors, "{{instance}}")),
            lines(
                About("Age of the last snapshot", "More than a few intervals: that node collects no more.", "s"),
                Query(age, "{{instance}}"),
            ),
        ],
    )


def fleet() -> dashboard.Dashboard:
    """The dashboard."""
    nodes = variable("instance", "Nodes", "label_values(dtk_build_info, instance)", many=True, all_value=".*")
    rows = [now(), attention(), use(), heat_and_power(), holders(), exporters()]
    return board("dtk-fleet", "DTK: all nodes", "The cards of many nodes.", [nodes], rows)
