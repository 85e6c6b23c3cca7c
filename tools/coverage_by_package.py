"""Print the branch coverage of each package of src/headgate, and the modules below 80 %: ``python -m tools.coverage_by_package FILE``.

FILE is the output of ``coverage json``. `scripts/test_all.sh` calls this for its part `coverage`. The percentage counts lines and branches
together, as ``coverage report`` does.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

LEAST = 80.0
"""The coverage in percent that each module must have."""


def percent(summaries: Iterable[dict[str, Any]]) -> float:
    """Return the percentage of lines and branches that were executed."""
    executed = existing = 0
    for summary in summaries:
        executed += summary["covered_lines"] + summary["covered_branches"]
        existing += summary["num_statements"] + summary["num_branches"]
    return 100 * executed / existing if existing else 100.0


def main(report: Path) -> None:
    """Print one line for each package, one for the total, and one for each module below the least."""
    packages: dict[str, list[dict[str, Any]]] = defaultdict(list)
    modules: dict[str, float] = {}
    for name, file in json.loads(report.read_text())["files"].items():
        module = Path(*Path(name).parts[Path(name).parts.index("headgate") :])
        packages[module.parts[1].removesuffix(".py")].append(file["summary"])
        modules[str(module)] = percent([file["summary"]])
    for package, summaries in sorted(packages.items()):
        print(f"{percent(summaries):6.1f} %  {package}")
    print(f"{percent(summary for summaries in packages.values() for summary in summaries):6.1f} %  all")
    for module, share in sorted(modules.items(), key=lambda item: item[1]):
        if share < LEAST:
            print(f"below {LEAST:.0f} %: {share:5.1f} %  {module}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
