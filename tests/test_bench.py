"""tools/bench: what it concludes from samples, what it times, what it compares with a baseline, what it draws.

Nothing here judges a loop's speed. The load generator is tried on servers of plain sockets.

SPDX-License-Identifier: MIT
"""

from __future__ import annotations

import importlib
import json
import re
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]


# ---- percentiles and ratios


@pytest.mark.parametrize(
    ("percent", "nanoseconds"), [(0, 1), (1, 1), (50, 50), (50.5, 51), (99, 99), (99.9, 100), (100, 100)]
)
def test_a_percentile_is_a_time_that_was_measured(bench: SimpleNamespace, percent: float, nanoseconds: int) -> None:
    times = bench.stats.Histogram.of(range(1, 101))
    assert times.percentile(percent) == nanoseconds / 1e9


def test_999_of_1000_are_within_p999(bench: SimpleNamespace) -> None:
    times = bench.stats.Histogram([(5, 999), (7, 1)])
    assert (times.percentile(99.9), times.percentile(99.99)) == (5e-9, 7e-9)


def test_histograms_add_up(bench: SimpleNamespace) -> None:
    times = bench.stats.Histogram([(10, 3), (30, 1)])
    times.add([(20, 4), (10, 2)])
    assert times.pairs() == [(10, 5), (20, 4), (30, 1)]
    assert times.count == 10
    with pytest.raises(ValueError, match="no times"):
        bench.stats.Histogram().percentile(50)


def test_a_ratio_is_of_pairs_in_the_same_round(bench: SimpleNamespace) -> None:
    """The machine is ten times slower in the second round: that does not touch the ratio."""
    found = bench.stats.ratio([[(2.0, 1.0), (2.0, 1.0)], [(20.0, 10.0), (22.0, 10.0)], [(2.0, 1.0)]])
    assert found.median == 2.0
    assert found.low == 2.0
    assert found.high == pytest.approx(2.1)
    assert found.rounds == 3
    assert bench.stats.ratio([[], []]) is None


# ---- what is concluded


def sample(bench: SimpleNamespace, number: int, label: str, slices: list[dict[str, float]], **more: Any) -> Any:
    values = {"calls": {}, "histogram": [], **more}
    return bench.rounds.Sample(number, "call_soon_burst", label, "a.Loop", slices, **values)


def told(cpu: float) -> dict[str, float]:
    return {"operations": 100, "wall": 1.0, "rate": 100.0, "cpu": cpu, "user": 0.9, "system": 0.1}


def summary(bench: SimpleNamespace, cpu: dict[str, float], failed: str = "") -> Any:
    samples = [
        sample(bench, number, label, [told(used), told(used)])
        for number in range(3)
        for label, used in cpu.items()
        if (number, label) != (1, failed)
    ]
    if failed:
        samples.append(sample(bench, 1, failed, [told(1e9)], error="it fell over"))
    return bench.report.summarize(samples, list(cpu))


EVEN = {"asyncio": 4.0, "asyncio (A/A)": 4.0, "uvloop": 2.0, "uvpy": 1.0}


def test_a_summary_has_each_loop_beside_asyncio_and_ours_beside_each(bench: SimpleNamespace) -> None:
    (result,) = summary(bench, EVEN).values()
    assert result["uvpy"]["x"]["cpu"].median == 4.0
    assert result["uvloop"]["x"]["cpu"].median == 2.0
    assert result["uvpy"]["against"]["uvloop"].median == 2.0
    assert result["uvpy"]["user"] == pytest.approx(0.9)
    assert "against" not in result["uvloop"]


def test_a_failed_run_is_shown_and_not_counted(bench: SimpleNamespace) -> None:
    results = summary(bench, EVEN, failed="uvpy")
    row = results["call_soon_burst"]["uvpy"]
    assert (row["rounds"], row["failed"], row["cpu"]) == (2, 1, 1.0)
    assert "2, 1 failed" in bench.report.show(results, {})


def test_one_that_always_failed_has_no_figure(bench: SimpleNamespace) -> None:
    samples = [sample(bench, 0, "asyncio", [told(4.0)]), sample(bench, 0, "uvpy", [], error="gone")]
    results = bench.report.summarize(samples, ["asyncio", "uvpy"])
    row = results["call_soon_burst"]["uvpy"]
    assert row["rounds"] == 0
    assert row["against"] == {"asyncio": None}
    assert bench.report.times_asyncio(row, "cpu") is None
    line = next(text for text in bench.report.show(results, {}).splitlines() if text.startswith("| uvpy"))
    assert [cell.strip() for cell in line.strip("|").split("|")[1:-1]] == [""] * (line.count("|") - 3)


@pytest.mark.parametrize(("control", "void"), [(4.1, False), (4.5, True), (3.6, True)])
def test_a_case_is_void_where_asyncio_strays_from_itself(bench: SimpleNamespace, control: float, void: bool) -> None:
    found = bench.report.strayed(summary(bench, {**EVEN, "asyncio (A/A)": control}))
    assert bool(found) == void


@pytest.mark.parametrize(("spread", "void"), [(0.01, False), (0.1, False), (0.2, True)])
def test_a_case_is_void_where_asyncio_is_not_sure_of_itself(bench: SimpleNamespace, spread: float, void: bool) -> None:
    """Its median is 1, but the rounds differ."""
    samples = [
        sample(bench, number, label, [told(4.0 * (1 + off if "A/A" in label else 1))])
        for number, off in enumerate((-spread, 0.0, spread))
        for label in EVEN
    ]
    assert bool(bench.report.strayed(bench.report.summarize(samples, list(EVEN)))) == void


def test_a_case_without_its_control_is_void(bench: SimpleNamespace) -> None:
    assert bench.report.strayed(summary(bench, {"asyncio": 4.0, "uvpy": 1.0})) == {
        "call_soon_burst": "asyncio could not be compared with itself by cpu"
    }


def test_a_busy_client_marks_the_row(bench: SimpleNamespace) -> None:
    assert bench.report.limited({"client": 0.86})
    assert not bench.report.limited({"client": 0.84})


def test_every_contender_of_a_case_is_known_and_every_target_has_its_cases(bench: SimpleNamespace) -> None:
    for name, case in bench.cases.CASES.items():
        assert set(case.extras) <= set(bench.loops.CONTENDERS), name
    data = bench.targets.Data()
    for target in bench.targets.TARGETS:
        for make in target.checks:
            for check in make(data):
                assert not check.case or check.case in bench.cases.CASES, target.text
                assert check.ok is None


# ---- targets


def measured(bench: SimpleNamespace, cpu: dict[str, float], **more: Any) -> Any:
    return bench.targets.Data(results=summary(bench, cpu), **more)


def judged(bench: SimpleNamespace, data: Any) -> str:
    target = bench.targets.Target("a case", "ahead", (bench.targets.ahead("call_soon_burst"),))
    return bench.targets.verdict(target, data).word


def test_a_target_is_met_or_missed_or_not_measured(bench: SimpleNamespace) -> None:
    assert judged(bench, measured(bench, EVEN)) == "met"
    assert judged(bench, measured(bench, {**EVEN, "uvpy": 2.5})) == "missed"
    assert judged(bench, bench.targets.Data()) == "not measured"
    assert judged(bench, measured(bench, EVEN, void={"call_soon_burst": "it strayed"})) == "void"


def test_instructions_decide_as_well(bench: SimpleNamespace) -> None:
    def counts(ours: float) -> dict[str, Any]:
        rows = {"asyncio": {"all": 900.0, "own": None}, "uvloop": {"all": 500.0, "own": 100.0}}
        return {"call_soon_burst": {**rows, "uvpy": {"all": 400.0, "own": ours}}}

    assert judged(bench, measured(bench, EVEN, instructions=counts(99.0))) == "met"
    assert judged(bench, measured(bench, EVEN, instructions=counts(101.0))) == "missed"


def test_what_is_at_the_floor_is_excused(bench: SimpleNamespace) -> None:
    data = measured(bench, {**EVEN, "uvpy": 2.5})
    row = data.results["call_soon_burst"]["uvpy"]
    row["against"]["C on libuv"] = bench.stats.Ratio(0.98, 0.97, 0.99, 3)
    assert judged(bench, data) == "floor"
    more = (bench.targets.ahead("call_soon_burst"), bench.targets.ahead("gather"))
    assert bench.targets.verdict(bench.targets.Target("", "", more), data).word == "not measured"  # the other one
    row["against"]["C on libuv"] = bench.stats.Ratio(0.96, 0.95, 0.97, 3)
    assert judged(bench, data) == "missed"


def test_aiofastnet_on_ours_has_a_floor_of_its_own(bench: SimpleNamespace) -> None:
    """What ours itself is near to does not excuse it."""
    ours = "uvpy + aiofastnet"
    data = measured(bench, EVEN)
    target = bench.targets.Target("", "", (bench.targets.against("call_soon_burst", "asyncio", 2.3, ours=ours),))
    rows = data.results["call_soon_burst"]
    rows[ours] = {"rounds": 3, "against": {"asyncio": bench.stats.Ratio(1.6, 1.6, 1.6, 3)}}
    rows["uvpy"]["against"][bench.loops.BAREST] = bench.stats.Ratio(1.0, 1.0, 1.0, 3)
    assert bench.targets.verdict(target, data).word == "missed"
    rows[ours]["against"][bench.loops.BAREST_FASTNET] = bench.stats.Ratio(0.98, 0.97, 0.99, 3)
    assert bench.targets.verdict(target, data).word == "floor"


@pytest.mark.parametrize(
    ("ours", "floor", "word"),
    [
        ({"p50": 0.25e-3, "p99": 0.9e-3, "busy": 0.95}, {"p50": 0.2e-3, "p99": 0.3e-3, "busy": 1.0}, "met"),
        ({"p50": 0.31e-3, "p99": 0.9e-3, "busy": 0.93}, {"p50": 0.302e-3, "p99": 0.3e-3, "busy": 0.95}, "floor"),
        ({"p50": 0.25e-3, "p99": 2.0e-3, "busy": 0.95}, {"p50": 0.24e-3, "p99": 1.9e-3, "busy": 0.95}, "missed"),
        ({"p50": 0.25e-3, "p99": 0.9e-3, "busy": 0.8}, {"p50": 0.24e-3, "p99": 0.8e-3, "busy": 0.9}, "missed"),
    ],
)
def test_each_figure_of_a_convoy_has_its_floor(
    bench: SimpleNamespace, ours: dict[str, float], floor: dict[str, float], word: str
) -> None:
    rows = {"uvpy": {"rounds": 1, **ours}, "C on libuv": {"rounds": 1, **floor}}
    data = bench.targets.Data(results={"convoy_20": rows})
    target = bench.targets.Target("a convoy", "", bench.targets.convoy("convoy_20"))
    assert bench.targets.verdict(target, data).word == word


def test_losses_are_listed(bench: SimpleNamespace) -> None:
    (loss,) = bench.targets.losses(measured(bench, {**EVEN, "uvpy": 2.5}))
    assert loss[:2] == ("call_soon_burst", "uvloop")
    assert list(bench.targets.losses(measured(bench, EVEN))) == []


# ---- the baseline

HERE = {"python": "CPython 3.99.0", "compiler": "c++ 1", "libuv": "1.0.0"}


def stored(**counts: float) -> dict[str, dict[str, float]]:
    return {name: {"all": 10 * value, "own": value} for name, value in counts.items()}


def test_more_than_five_percent_more_is_worse(bench: SimpleNamespace) -> None:
    compare = bench.baseline.compare
    assert compare(stored(a=100.0), stored(a=104.9)) == ([], [])
    worse, better = compare(
        stored(a=100.0, b=100.0), {"a": {"all": 1000.0, "own": 105.2}, "b": {"all": 900.0, "own": 100.0}}
    )
    assert [text.partition(":")[0] for text in worse] == ["a, own"]
    assert [text.partition(":")[0] for text in better] == ["b, all"]


def test_what_was_never_stored_is_an_error(bench: SimpleNamespace) -> None:
    (text,), _ = bench.baseline.compare(stored(a=1.0), stored(b=1.0))
    assert "b is not in the baseline" in text
    assert "--renew" in text


def test_a_baseline_of_another_make_is_refused_with_the_way_out(bench: SimpleNamespace) -> None:
    file = bench.baseline.renewed({}, HERE, stored(a=1.0))
    assert bench.baseline.expected(file, HERE) == stored(a=1.0)
    for other in ({**HERE, "libuv": "1.0.1"}, {**HERE, "compiler": "c++ 2"}, {**HERE, "python": "CPython 3.98.0"}):
        with pytest.raises(bench.native.Failed, match="--renew"):
            bench.baseline.expected(file, other)


def test_renewing_keeps_the_rest_only_where_it_is_of_the_same_make(bench: SimpleNamespace) -> None:
    file = bench.baseline.renewed({}, HERE, stored(a=1.0))
    assert set(bench.baseline.expected(bench.baseline.renewed(file, HERE, stored(b=2.0)), HERE)) == {"a", "b"}
    newer = {**HERE, "libuv": "1.0.1"}
    assert set(bench.baseline.expected(bench.baseline.renewed(file, newer, stored(b=2.0)), newer)) == {"b"}


def test_the_baseline_in_the_tree_has_what_ci_compares(bench: SimpleNamespace) -> None:
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        gate = importlib.import_module("devlib.gate")
    finally:
        sys.path.remove(str(ROOT / "tools"))
    for entry in bench.baseline.load().values():
        assert set(gate.COUNTED) <= entry["cases"].keys()
        assert entry["cases"].keys() <= bench.cases.COUNTED.keys()


def test_callgrind_counts_a_line_once(bench: SimpleNamespace) -> None:
    """What a call cost stands with the caller, too, and is not counted there."""
    lines = ["ob=(1) /lib/a.so", "fn=(1) f", "10 5", "cob=(2) /lib/b.so", "cfn=(2) g", "calls=1 20", "11 7", "+1 2"]
    lines += ["", "ob=(2)", "fn=(2)", "20 7"]
    assert bench.callgrind.by_object(lines) == {"/lib/a.so": 7, "/lib/b.so": 7}


# ---- system calls


def test_perf_and_strace_are_read_alike(bench: SimpleNamespace) -> None:
    perf = "# started\n30,,raw_syscalls:sys_enter,9,100.00,,\n7,,syscalls:sys_enter_epoll_wait,9,100.00,,\n"
    perf += "3,,syscalls:sys_enter_epoll_pwait,9,100.00,,\n<not counted>,,syscalls:sys_enter_poll,0,100.00,,\n"
    assert bench.syscalls.from_perf(perf) == {"calls": 30, "polls": 10}
    strace = """% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 60.00    0.000060           2        20         1 recvfrom
 40.00    0.000040           4        10           epoll_wait
------ ----------- ----------- --------- --------- ----------------
100.00    0.000100                    30         1 total
"""
    assert bench.syscalls.from_strace(strace) == {"calls": 30, "polls": 10}


# ---- pictures and the report


def elements(picture: str, name: str) -> list[ElementTree.Element]:
    return ElementTree.fromstring(picture).findall(f"{{http://www.w3.org/2000/svg}}{name}")


def test_bars_are_as_long_as_their_values(bench: SimpleNamespace) -> None:
    bar = bench.pictures.Bar
    group = [bar("asyncio", 1.0, 1.0, 1.0), bar("a <loop>", 2.0, 1.9, 2.0)]
    picture = bench.pictures.bars("A & B", {"case": group}, "{:.2f}".format, one="asyncio")
    _, short, long = elements(picture, "rect")
    assert float(long.get("width")) == pytest.approx(2 * float(short.get("width")), abs=0.2)
    assert {"A & B", "a <loop>", "2.00"} <= {text.text for text in elements(picture, "text")}


def test_curves_rise_with_the_time(bench: SimpleNamespace) -> None:
    picture = bench.pictures.curves("times", {"uvpy": [(50.0, 1e-4), (99.0, 1e-3), (99.99, 1e-2)]})
    (line,) = elements(picture, "polyline")
    points = [tuple(map(float, point.split(","))) for point in line.get("points").split()]
    assert [x for x, _ in points] == sorted(x for x, _ in points)
    first, second, third = (y for _, y in points)
    assert first - second == pytest.approx(second - third, abs=0.2)  # a tenfold each
    assert first > second


@pytest.mark.parametrize(
    ("seconds", "text"), [(2.0, "2 s"), (0.001, "1 ms"), (0.00025, "250 us"), (5e-8, "50 ns"), (0.01234, "12.3 ms")]
)
def test_times_have_a_unit(bench: SimpleNamespace, seconds: float, text: str) -> None:
    assert bench.pictures.time_text(seconds) == text


def run_of(bench: SimpleNamespace, cpu: dict[str, float]) -> dict[str, Any]:
    results = summary(bench, cpu)

    def plain(value: Any) -> Any:
        if hasattr(value, "_asdict"):
            return value._asdict()
        return {k: plain(v) for k, v in value.items()} if isinstance(value, dict) else value

    about = {"date": "2026-01-01", "machine": {"cores": 2}, "versions": {"uvpy": "1"}, "arguments": [], "seed": 1}
    return json.loads(json.dumps({**about, "results": plain(results), "void": {}, "failures": ["uvloop: gone"]}))


def test_the_report_says_what_the_json_says(bench: SimpleNamespace, tmp_path: Path) -> None:
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "old.svg").write_text("")
    bench.results.write([run_of(bench, EVEN)], tmp_path)
    text = (tmp_path / "RESULTS.md").read_text()
    assert "4.00 (4.00-4.00)" in text
    assert "failed: uvloop: gone" in text
    assert "Nowhere, in what was measured." in text
    assert "](pictures/scheduling.svg)" in text
    assert [file.name for file in (tmp_path / "pictures").iterdir()] == ["scheduling.svg"]
    bench.results.write([run_of(bench, EVEN), run_of(bench, {**EVEN, "uvpy": 2.5})], tmp_path)
    text = (tmp_path / "RESULTS.md").read_text()
    assert "4.00 (4.00-4.00)" not in text  # the later run counts
    assert "| call_soon_burst | uvloop |" in text


def linked(page: Path) -> list[str]:
    """The files and pictures of this repository that a page leads to."""
    found = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text())
    return [link for link in found if "://" not in link]


@pytest.mark.parametrize("page", ["README.md", "tools/bench/RESULTS.md"])
def test_what_the_pages_of_results_link_to_is_there(page: str) -> None:
    links = linked(ROOT / page)
    assert [link for link in links if not (ROOT / page).parent.joinpath(link).is_file()] == []
    assert any(link.endswith(".svg") for link in links)


def test_the_readme_shows_the_pictures_of_the_results() -> None:
    links = linked(ROOT / "README.md")
    assert {f"tools/bench/pictures/{name}.svg" for name in ("convoy", "echo", "http")} <= set(links)
    assert "tools/bench/RESULTS.md" in links


def row_of(**figures: float) -> dict[str, Any]:
    return {"rounds": 3, "x": {}, "against": {}, **figures}


def test_writes_threads_and_scale_have_tables(bench: SimpleNamespace) -> None:
    results = {
        "writes2_8": {"uvloop": row_of(calls=3.25, wakeups=0.5), "uvpy": row_of(calls=2.125, wakeups=0.25)},
        "writes5_8": {"uvpy": row_of(calls=9.0)},
        "convoy_2_threads": {"uvpy": row_of(busy=0.95)},
        "tcp_echo_10_t": {"uvpy": row_of(cpu=5e-6), "Go": row_of(cpu=1e-6)},
    }
    data = bench.targets.Data(results=results, void={"writes5_8": "it strayed"})
    assert bench.results._writes(data).splitlines()[-4:] == [
        "| case | uvloop | uvpy |",
        "| -- | -: | -: |",
        "| writes2_8 | 3.25, 0.50 | 2.12, 0.25 |",
        "| writes5_8 | void | void |",
    ]
    assert bench.results._threads(data).splitlines()[-1] == "| convoy_2_threads | 95% |"
    assert bench.results._scale(data).splitlines()[-1] == "| tcp_echo_10_t | 5.00 |"
    assert bench.results._scale(bench.targets.Data()) == ""


@pytest.mark.parametrize(
    ("many", "floor", "word"), [(5.5e-6, 1e-6, "met"), (6e-6, 1e-6, "missed"), (6e-6, 1.2e-6, "floor")]
)
def test_flat_is_within_15_percent_or_grows_as_a_floor(
    bench: SimpleNamespace, many: float, floor: float, word: str
) -> None:
    results = {
        "tcp_echo_10_t": {"uvpy": row_of(cpu=5e-6), "C on libuv": row_of(cpu=1e-6)},
        "tcp_echo_1000_t": {"uvpy": row_of(cpu=many), "C on libuv": row_of(cpu=floor)},
    }
    target = bench.targets.Target("", "", (bench.targets.flat("tcp_echo_10_t", "tcp_echo_1000_t"),))
    assert bench.targets.verdict(target, bench.targets.Data(results=results)).word == word


@pytest.mark.parametrize(("ours", "word"), [(2_400.0, "met"), (3_000.0, "floor"), (4_000.0, "missed")])
def test_instructions_beside_c_say_what_is_the_target_and_what_the_floor(
    bench: SimpleNamespace, ours: float, word: str
) -> None:
    """C's 1,000 one and a half times and the two calls' 1,000; the floor is C's and 2,000."""
    rows = {"uvpy": {"all": ours, "own": 1.0}, "C on libuv": {"all": 1_000.0, "own": None}}
    counts = {
        "tcp_echo": {**rows, "without a loop": {"all": 1_000.0, "own": None}},
        "tcp_echo_waiting": {"without a loop": {"all": 2_000.0, "own": None}},
    }
    target = bench.targets.Target("", "", (bench.targets.near_c("tcp_echo", 1.5),))
    assert bench.targets.verdict(target, bench.targets.Data(instructions=counts)).word == word


def test_a_void_case_is_not_drawn_and_says_so(bench: SimpleNamespace, tmp_path: Path) -> None:
    run = {**run_of(bench, EVEN), "void": {"call_soon_burst": "it strayed"}}
    bench.results.write([run], tmp_path)
    assert "VOID: it strayed" in (tmp_path / "RESULTS.md").read_text()
    assert list((tmp_path / "pictures").iterdir()) == []


# ---- a round


def plan(bench: SimpleNamespace, names: list[str], labels: list[str]) -> Any:
    return bench.rounds.Plan(1, 2, 0.1, names, [], labels, seed=1, pin=False, within=60.0, env={})


def test_a_round_is_played_by_all_side_by_side(bench: SimpleNamespace, load: Path) -> None:
    labels = ["asyncio", "asyncio (A/A)", "uvpy"]
    samples = bench.rounds.play(plan(bench, ["sleep0", "tcp_echo_1"], labels), lambda text: None, lambda found: ())
    assert [(s.label, s.error) for s in samples] == [(label, None) for label in [*labels, *labels]]
    assert {s.loop for s in samples if s.label == "uvpy"} == {"uvpy._loop.Loop"}
    results = bench.report.summarize(samples, labels)
    for name, result in results.items():
        for label, row in result.items():
            assert row["operations"] > 0, (name, label)
            assert row["cpu"] > 0, (name, label)
            assert row["x"]["rate"].median > 0, (name, label)
    assert results["tcp_echo_1"]["uvpy"]["p50"] <= results["tcp_echo_1"]["uvpy"]["p9999"]


@pytest.fixture
def clockwork(bench: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Rounds in which each case takes ten seconds of a clock that only they move; `played` has (case, round)."""
    found = SimpleNamespace(now=0.0, played=[])

    def case(number: int, name: str, *_: object) -> list[Any]:
        found.now += 10.0
        found.played.append((name, number))
        return [sample(bench, number, "uvpy", [told(1.0)])._replace(case=name)]

    monkeypatch.setattr(bench.rounds, "_case", case)
    monkeypatch.setattr(bench.rounds, "time", SimpleNamespace(monotonic=lambda: found.now))
    return found


def timed_plan(bench: SimpleNamespace, seconds: float) -> Any:
    names = [["sleep0", "gather"], ["tcp_echo_1", "churn"]]
    return bench.rounds.Plan(3, 2, 1.0, *names, ["uvpy"], seed=1, pin=False, within=seconds, env={})


def test_targets_have_all_their_rounds_before_the_others(bench: SimpleNamespace, clockwork: SimpleNamespace) -> None:
    """Of 100 s 85 are for rounds: the six of the two that come first, and one of each of the others."""
    bench.rounds.play(timed_plan(bench, 100.0), lambda text: None, lambda found: ())
    assert sorted(clockwork.played[:6]) == [(name, number) for name in ("gather", "sleep0") for number in range(3)]
    assert sorted(clockwork.played[6:]) == [("churn", 0), ("tcp_echo_1", 0)]


def test_void_cases_have_further_rounds_that_count_beside_the_first(
    bench: SimpleNamespace, clockwork: SimpleNamespace
) -> None:
    def strayed(found: list[Any]) -> list[str]:
        rounds = [s.case for s in found]
        return [name for name, enough in (("churn", 99), ("gather", 5)) if rounds.count(name) < enough]

    samples = bench.rounds.play(timed_plan(bench, 1e9), lambda text: None, strayed)
    assert [(s.case, s.round) for s in samples] == clockwork.played
    more = [("gather", 3), ("churn", 3), ("gather", 4)]  # a target's first, until it is good
    assert clockwork.played[12:15] == more
    assert clockwork.played[15:] == [("churn", number) for number in range(4, 9)]  # and an end of it


def test_what_is_void_is_played_again_within_the_time(bench: SimpleNamespace, clockwork: SimpleNamespace) -> None:
    bench.rounds.play(timed_plan(bench, 170.0), lambda text: None, lambda found: ["churn"])
    assert len(clockwork.played) == 17
    assert clockwork.now <= 170.0


def test_one_that_cannot_play_does_not_stop_the_others(bench: SimpleNamespace) -> None:
    """This case cannot be done without a loop."""
    order = ["asyncio", bench.loops.BARE]
    good, bad = bench.rounds._group(0, "sleep0", order, plan(bench, ["sleep0"], order), 0.0)
    assert good.error is None
    assert len(good.slices) == 2
    assert "ended with status 1" in bad.error
    assert bad.slices == []
