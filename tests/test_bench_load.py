"""tools/bench/native: the load generator, tried on servers of plain sockets.

SPDX-License-Identifier: MIT
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

BENCH = Path(__file__).resolve().parents[1] / "tools" / "bench"


def served(answer: Callable[[socket.socket], None]) -> tuple[socket.socket, threading.Thread]:
    """A server of plain sockets; a thread for each connection, until its listener is closed."""
    listener = socket.create_server(("127.0.0.1", 0))

    def talk(connection: socket.socket) -> None:
        with connection:
            answer(connection)

    def serve() -> None:
        threads: list[threading.Thread] = []
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                break
            threads.append(threading.Thread(target=talk, args=(connection,)))
            threads[-1].start()
        for thread in threads:
            thread.join()

    thread = threading.Thread(target=serve)
    thread.start()
    return listener, thread


def asked(load: Path, answer: Callable[[socket.socket], None], line: str, *options: str) -> dict[str, Any]:
    listener, thread = served(answer)
    try:
        command = [load, "--limit", "30", *options, "tcp", str(listener.getsockname()[1])]
        done = subprocess.run(command, input=f"{line}\n", capture_output=True, text=True, timeout=60, check=False)
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()
    if done.returncode:
        return {"error": done.stderr}
    ready, result = map(json.loads, done.stdout.splitlines())
    assert ready == {"ready": True}
    return result


def echo(connection: socket.socket) -> None:
    while data := connection.recv(65536):
        connection.sendall(data)


def test_load_counts_what_it_is_told_to(load: Path) -> None:
    found = asked(load, echo, "count 96", "--depth", "16", "--size", "100")
    assert found["operations"] == 96
    assert sum(count for _, count in found["histogram"]) == 96


def test_load_connects_for_each_request(load: Path) -> None:
    connections = 0

    def answer(connection: socket.socket) -> None:
        nonlocal connections
        connections += 1
        echo(connection)

    found = asked(load, answer, "count 20", "--churn")
    assert found["operations"] == connections == 20


def test_load_notices_a_wrong_answer(load: Path) -> None:
    def answer(connection: socket.socket) -> None:
        while data := connection.recv(65536):
            connection.sendall(data[:-1] + b"!")

    assert "the answer is not the request" in asked(load, answer, "count 1")["error"]


def test_load_at_a_rate_counts_from_when_a_request_was_due(bench: SimpleNamespace, load: Path) -> None:
    """The server stalls once, for 0.4 of the 0.8 s: then a good part of the requests has waited long, although each
    was answered at once when it was sent.
    """
    stalled = False

    def answer(connection: socket.socket) -> None:
        nonlocal stalled
        number = 0
        while data := connection.recv(65536):
            number += 1
            if number == 3:
                stalled = True
                time.sleep(0.4)
            connection.sendall(data)

    found = asked(load, answer, "fixed 0.8 200")
    assert stalled
    assert found["due"] == found["operations"] + found["unanswered"]
    assert 155 <= found["due"] <= 160
    times = bench.stats.Histogram(map(tuple, found["histogram"]))
    assert times.percentile(75) > 0.1
    assert times.percentile(100) > 0.39


def test_load_in_bursts_has_all_connections_due_at_once(bench: SimpleNamespace, load: Path) -> None:
    """Each is answered in its turn by a server that takes 5 ms: of the ten of a burst one has waited ten times that."""
    lock = threading.Lock()

    def answer(connection: socket.socket) -> None:
        while data := connection.recv(65536):
            with lock:
                time.sleep(0.005)
            connection.sendall(data)

    found = asked(load, answer, "bursts 0.45 100", "--connections", "10")
    assert found["due"] == 40
    times = bench.stats.Histogram(map(tuple, found["histogram"]))
    assert times.percentile(10) < 0.045
    assert times.percentile(90) > 0.045


def test_load_at_a_rate_that_cannot_be_kept_says_so(load: Path) -> None:
    def answer(connection: socket.socket) -> None:
        while data := connection.recv(65536):
            time.sleep(0.02)
            connection.sendall(data)

    found = asked(load, answer, "poisson 0.3 1000")
    assert found["unanswered"] > 200
    assert found["operations"] < 60
    assert sum(count for _, count in found["histogram"]) == found["due"]


def test_the_buckets_of_times_are_fine_enough(tmp_path: Path) -> None:
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler")
    source = tmp_path / "buckets.c"
    source.write_text(
        '#include "histogram.h"\n'
        "int main(void) {\n"
        "  uint64_t previous = 0;\n"
        "  for (uint64_t value = 0; value < 1000000000000ull; value += value / 97 + 1) {\n"
        "    uint64_t told = histogram_value(histogram_bucket(value));\n"
        "    uint64_t off = told > value ? told - value : value - told;\n"
        '    if (off * 128 > value || told < previous) return printf("%llu", (unsigned long long)value), 1;\n'
        "    previous = told;\n"
        "  }\n"
        "  return histogram_bucket(UINT64_MAX) >= HISTOGRAM_BUCKETS;\n"
        "}\n"
    )
    program = tmp_path / "buckets"
    subprocess.run(["cc", "-I", str(BENCH / "native"), "-o", program, source], check=True)
    done = subprocess.run([program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
