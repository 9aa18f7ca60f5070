"""What is counted as sent is what leaves the network interface."""

import json
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def ip(*args: str) -> None:
    subprocess.run(["ip", *args], check=True, capture_output=True)


@pytest.fixture
def namespaces() -> Iterator[tuple[str, str]]:
    """Two network namespaces joined by a veth pair: 10.231.7.1 and 10.231.7.2."""
    missing = [
        why
        for why, bad in (
            ("root", os.geteuid() != 0),
            ("the ip command", shutil.which("ip") is None),
        )
        if bad
    ]
    if missing:
        pytest.skip(f"needs {' and '.join(missing)}")
    tag = uuid.uuid4().hex[:6]
    names = (f"wb{tag}a", f"wb{tag}b")
    made: list[str] = []
    try:
        for name in names:
            ip("netns", "add", name)
            made.append(name)
        ip("link", "add", "wb0", "netns", names[0], "type", "veth",
           "peer", "name", "wb0", "netns", names[1])  # fmt: skip
        for number, name in enumerate(names, start=1):
            ip("-n", name, "addr", "add", f"10.231.7.{number}/24", "dev", "wb0")
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "link", "set", "wb0", "up")
        yield names
    finally:
        for name in made:
            ip("netns", "delete", name)


def test_sent_bytes_agree_with_the_interface_within_five_percent(
    namespaces: tuple[str, str],
) -> None:
    ranks = [
        subprocess.Popen(
            [
                "ip",
                "netns",
                "exec",
                name,
                sys.executable,
                "-m",
                "tests.numerics.veth_rank",
                str(rank),
                "10.231.7.1",
                "29431",
                "wb0",
            ],
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank, name in enumerate(namespaces)
    ]
    try:
        outputs = [rank.communicate(timeout=50)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()

    for output in outputs:
        ratios = json.loads(output.splitlines()[-1])
        # Packet headers and acknowledgements come on top.
        assert ratios == {
            "dp": pytest.approx(1.0, abs=0.05),
            "fsdp": pytest.approx(1.0, abs=0.05),
        }
