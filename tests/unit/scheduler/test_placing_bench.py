"""The placement benchmark runs; its figures are not checked here."""

import json
import subprocess
import sys
from pathlib import Path

BENCH = Path(__file__).parents[3] / "bench" / "placing_bench.py"


def test_a_small_run_answers_every_question(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    command = [sys.executable, str(BENCH), "--nodes=80", "--residents=50", "--rounds=1", f"--json={figures}"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    result = json.loads(figures.read_text())
    assert len(result["decisions"]) == 11
    assert all(took >= 0 for took in result["decisions"].values())
    assert result["memory"]["process_mb"] > 0
