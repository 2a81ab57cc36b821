"""A Dask cluster of real processes on loopback, and `tools/dev dask`: its scheduler's throughput, loop by loop.

The cluster is what Dask's documentation has people start: `dask scheduler` and `dask worker`, whose nannies spawn the
workers. Which loop they run on, the environment and what stands before the command say; nothing in Dask is touched.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from .builds import Env
from .steps import ROOT, WORK, Failure, end_group, environment, step

CLIENT = ROOT / "compat" / "dask_client.py"
RESULT, PART = WORK / "compat" / "dask.json", WORK / "compat" / "dask-part.json"
"""Of as many rounds and tasks as the report wants; of fewer."""
ROUNDS, TASKS = 5, 4000
UVLOOP_WANTED = {"DASK_DISTRIBUTED__ADMIN__EVENT_LOOP": "uvloop"}
CONTROL = "asyncio (A/A)"
LIMIT = 120.0  # seconds for a cluster to come, and for what a client does


@dataclasses.dataclass(frozen=True)
class Way:
    """How Dask is brought onto a loop."""

    variables: Mapping[str, str]
    before: tuple[str, ...] = ()
    """What stands between `python` and `-m dask`."""


WAYS = {
    "asyncio": Way({}),
    CONTROL: Way({}),
    "uvloop": Way(UVLOOP_WANTED),
    "uvpy": Way(UVLOOP_WANTED, ("-m", "uvpy", "exec")),
}


class Cluster:
    """A scheduler and its workers, as long as the `with` block lasts."""

    def __init__(self, python: Path, way: Way, workers: int, extra: Mapping[str, str] | None = None) -> None:
        self._python, self._way, self._workers = python, way, workers
        self._environment = environment({**(extra or {}), **way.variables})
        self._folder = Path(tempfile.mkdtemp(prefix="uvpy-dask-"))
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        addressed = ["--scheduler-file", str(self._file), "--no-dashboard"]
        self._start("scheduler", [*addressed, "--host", "127.0.0.1", "--port", "0"])
        number = ["--nworkers", str(self._workers), "--nthreads", "1", "--memory-limit", "0"]
        self._start("worker", [*addressed, *number, "--local-directory", str(self._folder), "--host", "127.0.0.1"])
        return self

    @property
    def _file(self) -> Path:
        return self._folder / "scheduler.json"

    @property
    def log(self) -> str:
        """What scheduler and workers have said."""
        return "".join(path.read_text(errors="replace") for path in sorted(self._folder.glob("*.log")))

    def command(self, module: str, arguments: Sequence[str]) -> list[str]:
        return [str(self._python), *self._way.before, *(("-m", module) if module else ()), *arguments]

    def _start(self, part: str, arguments: Sequence[str]) -> None:
        with (self._folder / f"{part}.log").open("wb") as out:
            process = subprocess.Popen(
                self.command("dask", [part, *arguments]),
                env=self._environment,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._processes.append(process)

    def ask(self, *arguments: str) -> dict[str, Any]:
        """What compat/dask_client.py says after doing one of its works on this cluster."""
        command = self.command("", [str(CLIENT), str(self._file), str(self._workers), *arguments])
        try:
            done = subprocess.run(
                command,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=LIMIT,
            )
        except subprocess.TimeoutExpired:
            raise Failure(f"dask: no answer within {LIMIT:.0f} s\n{self.log}") from None
        if done.returncode:
            raise Failure(f"dask: the client ended with {done.returncode}\n{done.stdout}{done.stderr}\n{self.log}")
        told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return told

    def stop(self) -> list[int]:
        """Ends workers and scheduler as a user would (SIGTERM), and gives their exit statuses."""
        for process in reversed(self._processes):
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(30)
        return [-1 if (status := process.poll()) is None else status for process in self._processes]

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._processes):
            end_group(process)
        shutil.rmtree(self._folder, ignore_errors=True)


def run(env: Env, *, rounds: int, tasks: int) -> int:
    """Measures, prints, and leaves the result for `tools/dev report`."""
    samples: dict[str, list[dict[str, Any]]] = {label: [] for label in WAYS}
    versions: dict[str, str] = {}
    for number in range(rounds):
        # There and back, so that none always comes first; a fresh cluster each time.
        for label in list(WAYS) if number % 2 == 0 else reversed(WAYS):
            with Cluster(env.python, WAYS[label], 1, env.environment()) as made:
                told = made.ask("throughput", str(tasks))
            if told["loop"].partition(".")[0] != label.partition(" ")[0]:
                raise Failure(f"dask: the scheduler that was to run on {label} ran on {told['loop']}")
            samples[label].append(told)
            step(
                f"round {number + 1}: {label:13} {told['loop']}: {told['rate']:7,.0f} tasks/s,"
                f" {told['cpu'] * 1e6:6.0f} us of the scheduler's processor time a task"
            )
            versions.setdefault(label, told["version"])
    result = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "python": env.key,
        "dask": samples["uvpy"][0]["dask"],
        "tasks": tasks,
        "rounds": rounds,
        "versions": versions,
        "loops": {label: told[0]["loop"] for label, told in samples.items()},
        "figures": {label: _figures(samples["asyncio"], told) for label, told in samples.items()},
    }
    path = RESULT if rounds >= ROUNDS and tasks >= TASKS else PART
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n")
    for label, figures in result["figures"].items():
        step(f"{label:13} " + ", ".join(f"{name} {value:g}" for name, value in figures.items()))
    return 0


def _figures(base: list[dict[str, Any]], told: list[dict[str, Any]]) -> dict[str, float]:
    """Medians over the rounds; times asyncio's of the same round, above 1 where this loop is faster."""
    pairs = list(zip(base, told, strict=True))
    return {
        "tasks_per_second": round(statistics.median(t["rate"] for t in told)),
        "scheduler_us_per_task": round(statistics.median(t["cpu"] for t in told) * 1e6),
        "times_rate": round(statistics.median(t["rate"] / b["rate"] for b, t in pairs), 3),
        "times_cpu": round(statistics.median(b["cpu"] / t["cpu"] for b, t in pairs), 3),
    }
