"""Every target of the fuzz runner for a moment: nothing crashes, hangs or grows; and the runner notices what does."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from tests.fuzz import many
from tests.fuzz.many import BATCH, GrownError, HungError, Mutator, Progress, run
from tests.fuzz.targets import TARGETS, Target

COUNT = 2 * BATCH
SEEDS = [b"\0some bytes that are long enough", b"\1others"]


@pytest.mark.parametrize("name", TARGETS)
def test_hostile_inputs_neither_crash_nor_hang_nor_stay(name: str) -> None:
    asyncio.run(run(TARGETS[name], BATCH))  # Caches are filled, modules loaded.
    figures = asyncio.run(run(TARGETS[name], COUNT, seed=2))
    assert figures.inputs == COUNT
    assert figures.accepted > 0, "seeds that nothing accepts reach nothing"
    assert figures.grown_blocks < COUNT, "what is kept of each input is never forgotten"


def examined(examine: object, count: int = BATCH, crashes: Path | None = None) -> many.Figures:
    target = Target("sample", "a sample", examine, lambda: SEEDS)  # type: ignore[arg-type]
    return asyncio.run(run(target, count, crashes=crashes))


def test_what_fails_is_kept_and_can_be_sent_in_again(tmp_path: Path) -> None:
    def examine(data: bytes) -> bool:
        assert len(data) < 40
        return True

    with pytest.raises(AssertionError) as caught:
        examined(examine, crashes=tmp_path)
    (kept,) = tmp_path.iterdir()
    assert caught.value.__notes__ == [f"kept as {kept}"]
    assert len(kept.read_bytes()) >= 40
    with pytest.raises(AssertionError):
        examine(kept.read_bytes())


def test_what_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many, "HANG_S", 0.05)

    def examine(_: bytes) -> bool:
        while True:
            pass

    with pytest.raises(HungError):
        examined(examine)


def test_what_grows_is_ended() -> None:
    kept: list[bytes] = []

    def examine(data: bytes) -> bool:
        kept.append(data.ljust(100_000, b"x"))
        return True

    with pytest.raises(GrownError, match="memory grew by"):
        examined(examine, 20 * BATCH)
    kept.clear()


def test_a_run_goes_on_where_another_ended() -> None:
    def inputs(first: int, count: int) -> list[bytes]:
        seen: list[bytes] = []

        def examine(data: bytes) -> bool:
            seen.append(data)
            return True

        target = Target("sample", "a sample", examine, lambda: SEEDS)
        asyncio.run(run(target, count, 7, first=first))
        return seen

    whole = inputs(0, 3 * BATCH)
    assert inputs(BATCH, 2 * BATCH) == whole[BATCH:]
    assert len({*whole}) > BATCH


def test_progress_is_kept_and_counts_for_the_same_source_alone(tmp_path: Path) -> None:
    kept = Progress(tmp_path / "progress" / "doors-1.json", "one")
    assert kept.done() == 0
    kept.note(3 * BATCH)
    assert kept.done() == 3 * BATCH
    assert Progress(kept.path, "another").done() == 0
    kept.path.write_text("{")
    assert kept.done() == 0


def test_a_report_names_faults_and_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sent: list[bytes] = []

    def examine(data: bytes) -> bool:
        sent.append(data)
        assert fragile == "whole" or len(data) < 40
        return True

    fragile = "whole"
    monkeypatch.setattr(many, "TARGETS", {"sample": Target("sample", "a sample", examine, lambda: SEEDS)})
    monkeypatch.setattr(many, "_limit", lambda _: None)

    def report(*options: str) -> tuple[int, dict[str, object]]:
        said = ["many", "--count", str(2 * BATCH), "--json", "--crashes", str(tmp_path), *options]
        monkeypatch.setattr("sys.argv", said)
        code = many.main()
        (one,) = json.loads(capsys.readouterr().out)["targets"]
        return code, one

    code, first = report()
    assert (code, first["inputs"], len(sent)) == (0, 2 * BATCH, 2 * BATCH)
    code, second = report()
    assert (code, second["inputs"], second["before"], len(sent)) == (0, 0, 2 * BATCH, 2 * BATCH)
    fragile = "not"
    code, third = report("--fresh")
    assert code == 1
    assert str(third["fault"]).startswith("AssertionError")
    assert "kept as" in str(third["fault"])


def test_most_inputs_are_valid_ones_that_were_changed() -> None:
    mutator = Mutator(SEEDS, 1)
    mutator.begin(0)
    made = [mutator.next() for _ in range(400)]
    assert {data[:1] for data in made} == {b"\0", b"\1"}, "the way in stays"
    assert sum(b"some bytes" in data or b"others" in data for data in made) > 50
