"""Write the Grafana dashboards, exporter/dashboards/*.json, or check that they are up to date (--check).

Titles, units and help of what the catalogue has come from it, as libdtk says.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from grafana.fleet import fleet
from grafana.node import node

ROOT = Path(__file__).resolve().parent.parent
TARGETS = {"node.json": node, "fleet.json": fleet}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail when a file is out of date")
    check = parser.parse_args().check
    stale = False
    for name, make in TARGETS.items():
        path = ROOT / "exporter" / "dashboards" / name
        text = JSONEncoder(indent=2, sort_keys=True, ensure_ascii=False).encode(make().build()) + "\n"
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale = True
        if not check:
            path.write_text(text, encoding="utf-8")
        print(f"{path.relative_to(ROOT)}: {'out of date, run `make generate`' if check else 'written'}")
    sys.exit(1 if check and stale else 0)


if __name__ == "__main__":
    main()
