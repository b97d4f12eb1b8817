"""Panels, rows and variables, as both dashboards use them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from string import ascii_uppercase
from typing import TypeAlias

from grafana_foundation_sdk.builders import (
    bargauge,
    common,
    dashboard,
    prometheus,
    stat,
    statetimeline,
    statushistory,
    table,
    timeseries,
)
from grafana_foundation_sdk.models import common as common_models
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from .about import About

Panel: TypeAlias = (
    bargauge.Panel | stat.Panel | statetimeline.Panel | statushistory.Panel | table.Panel | timeseries.Panel
)

SOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
WIDTH = 24
CARD = "{{index}} {{model}}"
NODE_CARD = "{{instance}} {{index}} {{model}}"

# Number, color of each state of a card; the higher the number, the worse.
STATES = {"ok": (0, "green"), "degraded": (1, "orange"), "unknown": (2, "purple"), "lost": (3, "red")}


@dataclass(frozen=True)
class Query:
    """What Prometheus is asked, and how the answer's series are called.

    limit: its series are drawn dashed and are not in the legend.
    """

    expression: str
    legend: str = ""
    limit: bool = False


def finish(panel: Panel, about: About, queries: Iterable[prometheus.Dataquery], width: int, empty: str) -> None:
    """What every panel has. `empty` is what it says when there is nothing to show, and that is well."""
    panel.title(about.title).description(about.help).datasource(SOURCE).span(width).height(8)
    panel.unit(about.unit)
    for letter, query in zip(ascii_uppercase, queries, strict=False):
        panel.with_target(query.ref_id(letter).datasource(SOURCE))
    if empty:
        panel.no_value(empty)


def over_time(queries: Iterable[Query]) -> list[prometheus.Dataquery]:
    return [prometheus.Dataquery().expr(query.expression).legend_format(query.legend).range() for query in queries]


def lines(about: About, *queries: Query, width: int = 12, stacked: bool = False, empty: str = "") -> timeseries.Panel:
    """Lines over time."""
    panel = timeseries.Panel()
    finish(panel, about, over_time(queries), width, empty)
    panel.legend(
        common.VizLegendOptions()
        .show_legend(True)
        .display_mode(common_models.LegendDisplayMode.LIST)
        .placement(common_models.LegendPlacement.BOTTOM)
    )
    panel.tooltip(
        common.VizTooltipOptions().mode(common_models.TooltipDisplayMode.MULTI).sort(common_models.SortOrder.DESCENDING)
    )
    panel.axis_soft_min(0)
    if about.unit == "percentunit":
        panel.axis_soft_max(1)
    if stacked:
        panel.stacking(common.StackingConfig().mode(common_models.StackingMode.NORMAL)).fill_opacity(30)
    for letter, query in zip(ascii_uppercase, queries, strict=False):
        if query.limit:
            hidden = {"legend": True, "tooltip": False, "viz": False}
            look = {"custom.lineStyle": {"fill": "dash", "dash": [8, 8]}, "custom.hideFrom": hidden}
            panel.override_by_query(letter, properties(look))
    return panel


def bars(about: About, *queries: Query, width: int = 12, every: str = "1m", over: str = "") -> timeseries.Panel:
    """Bars over time: how often something happened, or how much was used, in each interval.

    over: the time that is shown, "" for that of the dashboard.
    """
    panel = lines(about, *queries, width=width, stacked=True)
    panel.draw_style(common_models.GraphDrawStyle.BARS).fill_opacity(80).interval(every)
    if over:
        panel.time_from(over)
    return panel


def number(
    about: About, expression: str, *, legend: str = "", bad: float | None = None, width: int = 3, empty: str = ""
) -> stat.Panel:
    """One number, as it is now; red from `bad` on. With a legend, that text instead."""
    panel = stat.Panel()
    finish(panel, about, [prometheus.Dataquery().expr(expression).legend_format(legend).instant()], width, empty)
    panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    panel.text_mode(common_models.BigValueTextMode.NAME if legend else common_models.BigValueTextMode.VALUE)
    panel.graph_mode(common_models.BigValueGraphMode.NONE).height(4)
    panel.thresholds(steps(("text", None)) if bad is None else steps(("green", None), ("red", bad)))
    return panel


def top(about: About, query: Query, *, width: int = 8, low_is_bad: bool = False, empty: str = "") -> bargauge.Panel:
    """A bar for each series, as it is now, in the order of the query."""
    panel = bargauge.Panel()
    asked = prometheus.Dataquery().expr(query.expression).legend_format(query.legend).instant()
    finish(panel, about, [asked], width, empty)
    panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    panel.orientation(common_models.VizOrientation.HORIZONTAL).min(0)
    modes = models.FieldColorModeId
    mode = modes.CONTINUOUS_RD_YL_GR if low_is_bad else modes.CONTINUOUS_GR_YL_RD
    panel.color_scheme(dashboard.FieldColor().mode(mode))
    return panel


def states(about: About, query: Query, width: int = 12) -> statetimeline.Panel:
    """The state of each card over time. The query gives the numbers of STATES."""
    panel = statetimeline.Panel()
    finish(panel, about, over_time([query]), width, "")
    panel.mappings([state_names({str(code): name for name, (code, _) in STATES.items()})])
    panel.show_value(common_models.VisibilityMode.NEVER)
    return panel


def heat(about: About, query: Query, width: int = WIDTH) -> statushistory.Panel:
    """A row for each series, colored by its value, a ratio."""
    panel = statushistory.Panel()
    finish(panel, about, over_time([query]), width, "")
    panel.min(0).max(1).max_data_points(96).show_value(common_models.VisibilityMode.NEVER)
    panel.color_scheme(dashboard.FieldColor().mode(models.FieldColorModeId.CONTINUOUS_YL_RD))
    return panel


def grid(
    about: About,
    expression: str,
    columns: Mapping[str, str],
    units: Mapping[str, str] | None = None,
    *,
    width: int = 12,
    empty: str = "",
) -> table.Panel:
    """A table of what is so now.

    columns: labels, and "Value", in order, and their titles. The uuid is added where it is of cards: a lost card may
        have the index that another has by now.
    units: Grafana's unit, or "state", by the title of a column.
    """
    if "index" in columns:
        columns = {**columns, "uuid": "uuid"}
    labels = [label for label in columns if label != "Value"]
    panel = table.Panel()
    finish(panel, about, [instant(only(expression, *labels))], width, empty)
    arrange(panel, columns, units or {})
    return panel


def joined(
    about: About, key: str, expressions: Iterable[str], columns: Mapping[str, str], units: Mapping[str, str]
) -> table.Panel:
    """A table of several queries, a row for each value of the label `key`.

    columns: labels, and "Value #A" for the values of the first query, and so on, in order, and their titles.
    """
    panel = table.Panel()
    finish(panel, about, map(instant, expressions), WIDTH, "")
    transform(panel, "joinByField", {"byField": key, "mode": "outer"})
    transform(panel, "filterFieldsByName", {"include": {"names": list(columns)}})
    # A number, so that 10 comes after 9.
    transform(panel, "convertFieldType", {"conversions": [{"targetField": "index", "destinationType": "number"}]})
    arrange(panel, columns, units)
    return panel


def instant(expression: str) -> prometheus.Dataquery:
    return prometheus.Dataquery().expr(expression).instant().format(PromQueryFormat.TABLE)


def only(expression: str, *labels: str) -> str:
    """The expression with these labels alone: each becomes a column."""
    return f"max by ({', '.join(labels)}) (\n{expression}\n)"


def arrange(panel: table.Panel, columns: Mapping[str, str], units: Mapping[str, str]) -> None:
    """Order, titles and looks of a table's columns."""
    hidden = {field: True for field in ("Time", "Value") if field not in columns}
    places = {field: place for place, field in enumerate(columns)}
    transform(panel, "organize", {"excludeByName": hidden, "indexByName": places, "renameByName": dict(columns)})
    panel.show_header(True).sort_by([common.TableSortByFieldState().display_name(next(iter(columns.values())))])
    for title, unit in units.items():
        panel.override_by_name(title, properties(cell(unit)))
    if "instance" in columns:
        url = "/d/dtk-node?var-datasource=${datasource}&var-instance=${__value.raw}&${__url_time_range}"
        panel.override_by_name(columns["instance"], properties({"links": [{"title": "This node", "url": url}]}))


def cell(unit: str) -> dict[str, object]:
    """The look of a table's column of values in that unit."""
    if unit == "state":
        named = state_names({name: name for name in STATES})
        return {"mappings": [named], "custom.cellOptions": {"type": "color-text"}}
    if unit == "percentunit":
        return {"unit": unit, "min": 0, "max": 1, "custom.cellOptions": {"type": "gauge", "mode": "basic"}}
    return {"unit": unit}


def state_names(names: Mapping[str, str]) -> models.ValueMap:
    """Colors for the states of STATES, by what stands for them."""
    return models.ValueMap(
        options={key: models.ValueMappingResult(text=name, color=STATES[name][1]) for key, name in names.items()}
    )


def transform(panel: table.Panel, name: str, options: dict[str, object]) -> None:
    panel.with_transformation(models.DataTransformerConfig(id_val=name, options=options))


def properties(values: Mapping[str, object]) -> list[models.DynamicConfigValue]:
    return [models.DynamicConfigValue(id_val=name, value=value) for name, value in values.items()]


def steps(*pairs: tuple[str, float | None]) -> dashboard.ThresholdsConfig:
    """Colors, and from which value on."""
    return (
        dashboard.ThresholdsConfig()
        .mode(models.ThresholdsMode.ABSOLUTE)
        .steps([models.Threshold(value=value, color=color) for color, value in pairs])
    )


def variable(
    name: str, title: str, query: str, *, regex: str = "", many: bool = False, all_value: str = "", hidden: bool = False
) -> dashboard.QueryVariable:
    """A variable with the values that a query finds."""
    made = dashboard.QueryVariable(name).id(name).label(title).datasource(SOURCE)
    made.query({"query": query, "refId": name}).regex(regex)
    made.refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED).sort(models.VariableSort.NUMERICAL_ASC)
    if many:
        made.multi(True).include_all(True)
        made.current(models.VariableOption(selected=True, text=["All"], value=["$__all"]))
    if all_value:
        made.all_value(all_value)
    if hidden:
        made.hide(models.VariableHide.HIDE_VARIABLE)
    return made


@dataclass(frozen=True)
class Row:
    """Panels under a title, folded away or not."""

    title: str
    panels: list[Panel]
    folded: bool = False


def expressions(row: Row) -> list[str]:
    """What the panels of a row ask."""
    return [target.expr for panel in row.panels for target in panel.build().targets or []]


def board(
    uid: str, title: str, help_text: str, variables: list[dashboard.QueryVariable], rows: Iterable[Row]
) -> dashboard.Dashboard:
    """A dashboard of rows; they are placed from left to right and from top to bottom."""
    made = dashboard.Dashboard(title).uid(uid).description(help_text).tags(["dtk"])
    made.time("now-6h", "now").refresh("1m").timezone("browser").tooltip(models.DashboardCursorSync.CROSSHAIR)
    made.link(dashboard.DashboardLink("dtk").type(models.DashboardLinkType.DASHBOARDS).tags(["dtk"]).keep_time(True))
    source = dashboard.DatasourceVariable("datasource").id("datasource")
    made.with_variable(source.label("Data source").type("prometheus"))
    for each in variables:
        made.with_variable(each)
    identity = 0
    for row in rows:
        identity += 1
        header = dashboard.Row(row.title).id(identity)
        for panel in row.panels:
            identity += 1
            panel.id(identity)
        if row.folded:
            header.collapsed(True)
            for panel in row.panels:
                header.with_panel(panel)
            made.with_row(header)
        else:
            made.with_row(header)
            for panel in row.panels:
                made.with_panel(panel)
    return made
