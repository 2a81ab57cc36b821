"""The tools behind compat/suites: how the loop is swapped and counted, how results are judged, and the report."""

import dataclasses
import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from devlib import outcomes, recipes, reports  # noqa: E402
from devlib.outcomes import Result, Run  # noqa: E402

SITE = str(pathlib.Path(__import__("uvpy").__file__).parent.parent)

SUITE = """
import asyncio, os, threading, time, pytest

async def nothing(): await asyncio.sleep(0)

def test_runs_a_loop(): asyncio.run(nothing())
def test_makes_a_selector_loop():
    loop = asyncio.SelectorEventLoop()
    loop.run_until_complete(nothing())
    loop.close()
def test_asks_the_policy():
    loop = asyncio.get_event_loop_policy().new_event_loop()
    loop.run_until_complete(nothing())
    loop.close()
def test_in_a_thread():
    thread = threading.Thread(target=asyncio.run, args=(nothing(),))
    thread.start()
    thread.join()
def test_runs_none(): pass
def test_fails(): assert False
@pytest.mark.skip
def test_skipped(): pass
@pytest.mark.xfail
def test_expected_to_fail(): assert False
@pytest.fixture
def broken():
    yield
    raise ValueError
def test_teardown_fails(broken): pass
def test_another_loop():
    loop = asyncio.unix_events._UnixSelectorEventLoop()
    loop.run_until_complete(nothing())
    loop.close()
def test_left_out(): raise SystemExit
def test_in_a_child():
    import subprocess, sys
    code = "import asyncio; print(type(asyncio.new_event_loop()).__module__)"
    out = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True).stdout
    assert out.strip() == MODULE
MODULE = "uvpy._loop" if os.environ["UVPY_SUITES_LOOP"] == "uvpy" else "asyncio.unix_events"
"""


def run_suite(folder, loop, text, done=(), limit=0):
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_suite.py").write_text(text)
    job, results = folder / "job.json", folder / "results.jsonl"
    results.unlink(missing_ok=True)
    job.write_text(
        json.dumps({"results": str(results), "done": list(done), "left_out": ["test_left*"], "limit": limit})
    )
    environment = {
        **os.environ,
        "PYTHONPATH": str(recipes.RECIPES / "inject"),
        "UVPY_SUITES_LOOP": loop,
        "UVPY_SUITES_PATH": SITE,
        "UVPY_SUITES_JOB": str(job),
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "suites_pytest", "--rootdir=.", "-p", "no:cacheprovider"]
    done_process = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=55)
    run = Run(loop, 1)
    return run, run.read(results), done_process


@pytest.mark.parametrize("loop", ["asyncio", "uvpy"])
def test_what_the_injection_sees(tmp_path, loop):
    run, current, process = run_suite(tmp_path, loop, SUITE)
    assert run.complete, process.stdout
    assert current is None
    tests = {name.removeprefix("test_suite.py::test_"): test for name, test in run.tests.items()}
    assert {name for name, test in tests.items() if test.drove} == {
        *("runs_a_loop", "makes_a_selector_loop", "asks_the_policy", "in_a_thread"),
    }
    assert {name: test.outcome for name, test in tests.items() if test.outcome != "passed"} == {
        "fails": "failed",
        "skipped": "skipped",
        "expected_to_fail": "xfailed",
        "teardown_fails": "error",
    }
    assert list(outcomes.foreign([run]).values()) == [["asyncio.unix_events._UnixSelectorEventLoop"]]
    assert run.left_out == 1
    assert outcomes.doubts([run], [run], {loop: "" if loop == "asyncio" else SITE}) == []
    assert outcomes.doubts([run], [run], {loop: "/elsewhere"})


def test_a_crash_costs_one_test(tmp_path):
    text = "import os\ndef test_a(): pass\ndef test_b(): os._exit(3)\ndef test_c(): pass\n"
    run, current, process = run_suite(tmp_path, "uvpy", text)
    assert (process.returncode, current, run.complete) == (3, "test_suite.py::test_b", False)
    assert list(run.tests) == ["test_suite.py::test_a"]
    run, current, process = run_suite(tmp_path, "uvpy", text, done=["test_suite.py::test_a", "test_suite.py::test_b"])
    assert (current, run.complete, list(run.tests)) == (None, True, ["test_suite.py::test_c"])


def test_a_hang_in_c_is_ended(tmp_path):
    text = "import threading\ndef test_a():\n    lock = threading.Lock()\n    lock.acquire()\n    lock.acquire()\n"
    run, current, process = run_suite(tmp_path, "uvpy", text, limit=1)
    assert (process.returncode, current, run.complete) == (1, "test_suite.py::test_a", False)
    assert "Timeout" in process.stderr


def made(loop, **tests):
    run = Run(loop, 1, complete=True, injected={"loop": f"{loop}.Loop", "file": f"/at/{loop}/__init__.py"})
    for name, (outcome, drove) in tests.items():
        run.tests[name] = Result(outcome, drove=drove)
    return run


PASS, IDLE, FAIL, SKIP = ("passed", True), ("passed", False), ("failed", True), ("skipped", False)
GIVEN_UP = ("xfailed", True)
PATHS = {"asyncio": "", "uvpy": "/at"}


def test_a_test_is_ours_if_it_fails_once_and_never_with_stock():
    stock = [made("asyncio", a=PASS, b=PASS, c=FAIL), made("asyncio", a=PASS, b=FAIL, c=FAIL)]
    ours = [made("uvpy", a=PASS, b=FAIL, c=FAIL), made("uvpy", a=FAIL, b=PASS, c=PASS)]
    assert outcomes.compare(stock, ours) == outcomes.Comparison(["a"], [], [], [])


def test_passing_without_the_loop_counts_against_it():
    stock = [made("asyncio", a=PASS, b=IDLE, c=PASS), made("asyncio", a=PASS, b=IDLE, c=IDLE)]
    assert outcomes.compare(stock, [made("uvpy", a=IDLE, b=IDLE, c=IDLE)]).not_driven == ["a"]
    assert outcomes.compare(stock, [made("uvpy", a=PASS, b=PASS, c=IDLE)]).clean


def test_the_same_tests_must_run():
    stock = [made("asyncio", a=PASS, b=PASS, c=SKIP)]
    found = outcomes.compare(stock, [made("uvpy", a=PASS, b=SKIP, c=PASS)])
    assert (found.not_run, found.more, found.clean) == (["b"], ["c"], False)
    assert outcomes.compare(stock, [made("uvpy", a=PASS, c=SKIP)]).not_run == ["b"]


def test_an_expected_failure_is_ours_where_stock_always_passes():
    stock = [made("asyncio", a=PASS, b=PASS, c=GIVEN_UP), made("asyncio", a=PASS, b=GIVEN_UP, c=GIVEN_UP)]
    assert outcomes.compare(stock, [made("uvpy", a=GIVEN_UP, b=GIVEN_UP, c=GIVEN_UP)]).bad == ["a"]


def test_a_comparison_that_proves_something():
    assert outcomes.doubts([made("asyncio", a=PASS, b=IDLE)], [made("uvpy", a=PASS)], PATHS) == []


@pytest.mark.parametrize(
    ("stock", "ours", "says"),
    [
        ([], [made("uvpy", a=PASS)], "no runs of both"),
        ([made("asyncio", a=PASS)], [], "no runs of both"),
        ([made("asyncio")], [made("uvpy")], "no test ran on asyncio"),
        ([made("asyncio", a=SKIP)], [made("uvpy", a=SKIP)], "no test ran on asyncio"),
        ([made("asyncio", a=IDLE)], [made("uvpy", a=IDLE)], "the loop ran in no test"),
        ([made("asyncio", a=PASS)], [dataclasses.replace(made("uvpy", a=PASS), complete=False)], "come to its end"),
        ([made("asyncio", a=PASS)], [dataclasses.replace(made("asyncio", a=PASS), loop="uvpy")], "ran on asyncio.Loop"),
        ([made("asyncio", a=PASS)], [dataclasses.replace(made("uvpy", a=PASS), injected={})], "no injected loop"),
    ],
)
def test_a_comparison_that_proves_nothing(stock, ours, says):
    (doubt,) = outcomes.doubts(stock, ours, PATHS)
    assert says in doubt


def test_another_uvpy_than_the_one_to_be_tested():
    ours = [made("uvpy", a=PASS)]
    assert outcomes.doubts([made("asyncio", a=PASS)], ours, {**PATHS, "uvpy": "/here"})


@pytest.mark.parametrize(
    ("message", "says"),
    [
        ("", ""),
        ("assert 1 == 2\n +  where 1 = f(<x at 0x7f00aa>)", "assert 1 == 2"),
        ("  E  x\nE   ValueError: of <a.B object at 0x7f00aa>\n  at the end", "ValueError: of <a.B object>"),
    ],
)
def test_the_gist_of_a_failure(message, says):
    assert outcomes.gist(message) == says


def test_recipes_load_and_pin_what_they_test():
    found = recipes.recipes()
    assert found
    for recipe in found.values():
        assert any(part.endswith(f"=={recipe.version}") for part in recipe.install), recipe.name
        for case in (*recipe.left_out, *recipe.foreign, *recipe.excused):
            assert case.why


@pytest.mark.parametrize(
    ("part", "test", "means"),
    [
        ("ipv6", "t.py::a[x-ipv6]", True),
        ("a[*ipv6]", "t.py::a[x-ipv6]", True),
        ("a[*ipv6]", "t.py::b[x-ipv6]", False),
        ("t.py::a", "t.py::b", False),
    ],
)
def test_tests_of_a_recipe(part, test, means):
    assert recipes.matches(part, test) is means


def result(loop, tests):
    """What tools/dev suites writes of two runs on stock and two on this loop, as far as the report reads it."""
    runs = [Run("asyncio", 1), Run("asyncio", 2), Run(loop, 1), Run(loop, 2)]
    for name, outcomes_of_runs in tests.items():
        for run, outcome in zip(runs, outcomes_of_runs, strict=True):
            run.tests[name] = Result(outcome, "ValueError: why" if outcome == "failed" else "", drove=True)
    stock, ours = runs[:2], runs[2:]
    return {
        "suite": "some",
        "what": "Some suite",
        "version": "1",
        "source": "sdist",
        "python": "3.13.0",
        "date": "2000-01-01",
        "good": False,
        "services": {},
        "versions": {loop: "9"},
        "left_out": {"x": "no"},
        "excused": {},
        "stale": ["t_stale"],
        "foreign": {},
        "unexplained_foreign": {"t_other": ["a.Loop"]},
        "incomplete": [],
        "doubts": ["a doubt"],
        "revision": "abc",
        "asked": ["tests", "-m", "not slow"],
        "comparisons": {loop: dataclasses.asdict(outcomes.compare(stock, ours))},
        "figures": {"asyncio": [run.count() for run in stock], loop: [run.count() for run in ours]},
        "runs": [
            {"loop": run.loop, "tests": {name: dataclasses.asdict(test) for name, test in run.tests.items()}}
            for run in runs
        ],
    }


def test_the_report_says_what_speaks_against_us():
    tests = {f"t{number}": ["passed", "passed", "failed", "passed"] for number in range(40)}
    tests |= {"t_stock": ["failed", "passed", "failed", "failed"], "t_skip": ["skipped"] * 4}
    page = reports.page([], [reports._of_suite(result("uvpy", tests))], [])
    assert "| some 1 | 3.13.0 | 40 to 41 / 0 to 1 / 1 / 0 | - | 0 to 40 / 1 to 41 / 1 / 0 |" in page
    assert "| 40, 0, 0 | NO |" in page
    assert all(f"- `t{number}`\n" in page for number in range(40))
    assert "- `t_stock`: `ValueError: why` (runs: 1 on asyncio, 2 on uvpy)" in page
    for text in ("this tree abc", "'not slow'", "(0 tests)", "- `t_other`: a.Loop", "a doubt", "t_stale"):
        assert text in page
    assert "Without the results of a whole run so far: aiohttp, " in page


def test_the_report_is_made_from_its_data():
    page = ROOT / "compat" / "REPORT.md"
    if not page.exists():
        pytest.skip("no results are kept")
    assert page.read_text() == reports.page(*map(reports._kept, ("cpython", "suites", "dask")))
