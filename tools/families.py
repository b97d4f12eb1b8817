"""Write docs/exporter-metrics.md from the families of dtk-exporter, or check that it is up to date (--check)."""

from __future__ import annotations

import sys
from pathlib import Path

from dtk_exporter.families import CATALOGUE, FAMILIES

PAGE = Path(__file__).resolve().parent.parent / "docs" / "exporter-metrics.md"

HEAD = """\
# Metrics of dtk-exporter

Made by `make generate` from the metric catalogue and `exporter/dtk_exporter/families.py`. Names and labels that were
released never change. A missing value has no sample; `metric` is the name in `dtk-smi`, JSON and `import dtk`, with its
own unit there ([metrics](metrics.md)). Besides these there are the `process_*` of Prometheus' client library, which
tell what the exporter itself costs.

| family | type | labels | meaning | metric |
|---|---|---|---|---|
"""


def page() -> str:
    rows = []
    for family in FAMILIES:
        metrics = [column.metric for column in CATALOGUE if column.family == family]
        cells = (
            f"`{family.name}`",
            family.type,
            " ".join(f"`{label}`" for label in family.labels),
            family.help,
            " ".join(f"`{metric}`" for metric in metrics),
        )
        rows.append(f"| {' | '.join(cells)} |\n")
    return HEAD + "".join(rows)


def main() -> None:
    """Command line."""
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(page(), encoding="utf-8")
    elif PAGE.read_text(encoding="utf-8") != page():
        sys.exit(f"{PAGE.name}: out of date, run `make generate`")


if __name__ == "__main__":
    main()
