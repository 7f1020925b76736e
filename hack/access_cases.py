"""Records what a real kube-apiserver responds to the requests in tests/support/cases/access.py.

    python hack/access_cases.py    needs hack/kubernetes.sh to have run; a minute

Writes tests/data/access.json, a line for each request.
"""

import asyncio
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from support.cases.access import RECORDED, USERS, AccessPlayer, all_steps  # noqa: E402
from support.servers import real  # noqa: E402


def main() -> None:
    steps = all_steps()
    with real.RealServer(users=USERS, controller_manager=True) as server:
        outcomes = asyncio.run(AccessPlayer(server.url, server.ca, "access-cases").record(steps))
    lines = [json.dumps(outcome) for outcome in outcomes]
    RECORDED.write_text("[\n" + ",\n".join(lines) + "\n]\n")
    print(f"{len(lines)} outcomes")


if __name__ == "__main__":
    main()
