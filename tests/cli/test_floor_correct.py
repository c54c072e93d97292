"""`isocast floor correct` and `countersign`: two operators, two keys, one paper; and every way to get it wrong."""

from __future__ import annotations

import json
from pathlib import Path
from time import time_ns

import pytest
from tests.runtime.disk.test_floor_journal import CODE, computed, written
from tests.runtime.worlds import SMALL, market_file

from isocast.cli.main import main
from isocast.floor.corrections import Correction, correction_topic, encode_correction
from isocast.floor.rights import SourceRights
from isocast.runtime.disk.floor_journal import JournalFloor
from isocast.runtime.hosts.order_checks import listed_now
from isocast.runtime.market.file import load_market
from isocast.runtime.market.roster_files import load_book, save_revocation
from isocast.runtime.market.roster_making import revocation_of
from isocast.runtime.operate import floor_correction
from isocast.runtime.operate.floor_correction import read_proposal
from isocast.terms.ids import operator_id
from isocast.wire.opaque import OpaqueMessage, cut_opaque

NODES = {name: SMALL[name] for name in ("a", "b", "c", "x", "floor")}


class Office:
    """A market with three correctors of its floor, a journal of it, and what was sent."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        settings: dict[str, dict[str, object]] = {
            f"floor.{CODE}": {"sources": ["floor"], "correctors": ["operator", "anna", "ben"]},
            f"[floor.{CODE}.symbols]": {"symbol": "ISO", "tick": "0.0001"},
        }
        self.file = market_file(folder, NODES, settings=settings)
        self.market = load_market(self.file)
        self.folder = folder
        self.sent: list[Correction] = []
        self.journal = self.journal_with()

        async def send(_: object, __: object, correction: Correction) -> None:
            self.sent.append(correction)

        monkeypatch.setattr(floor_correction, "publish_correction", send)

    def journal_with(self, *corrections: Correction, confirmed: int = 2, instant: int | None = None) -> Path:
        """Trades 1 and 2 are confirmed, 3 is tentative."""
        reports = computed()
        reports[3] = reports[3]._replace(confirmed=confirmed)
        where = self.folder / f"journal-{len(list(self.folder.iterdir()))}"
        papers = [encode_correction(one) for one in corrections]
        return written(where, reports, corrections=papers, corrected_at=instant)

    def key(self, name: str) -> str:
        return str(self.market.keys_directory / f"identity-{name}.key")

    def correct(self, trade: int, *options: str, key: str = "anna") -> int:
        end = ["--operator-key", self.key(key), "--out", str(self.folder / "paper"), "--config", str(self.file)]
        return main(["floor", "correct", str(trade), str(self.journal), *options, *end])

    def countersign(self, *options: str, key: str = "ben", journal: Path | None = None) -> int:
        end = ["--operator-key", self.key(key), "--config", str(self.file)]
        return main(["floor", "countersign", str(self.folder / "paper"), str(journal or self.journal), *options, *end])


def _block(correction: Correction) -> bytes:
    (block,) = cut_opaque([OpaqueMessage(correction_topic(CODE), encode_correction(correction))], 1_200)
    return block


@pytest.fixture
def office(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Office:
    return Office(tmp_path, monkeypatch)


def test_one_proposes_and_another_countersigns_and_sends_what_receivers_take(
    office: Office, capsys: pytest.CaptureFixture[str]
) -> None:
    assert office.correct(1, "--price", "0.1000", "--quantity", "80", "--reason", "wrong price") == 0
    said = capsys.readouterr().out
    assert "Trade 1 of XISO, 100 ISO at 0.1002: 80 at 0.1000. Signed by anna." in said
    assert "Next, operator, ben: isocast floor countersign" in said
    assert office.sent == [], "one signature changes nothing"
    assert "anna" not in (office.folder / "paper").read_text(), "no key, and no name, is in the paper"
    assert office.countersign("--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["right_price"], found["right_quantity"], found["signed_by"]) == ("0.1000", 80, ["anna", "ben"])
    (sent,) = office.sent
    assert [one.signer for one in sent.signatures] == [operator_id("anna"), operator_id("ben")]
    rights, source = office.market.source_rights, office.market.node("floor").node
    assert isinstance(rights, SourceRights)
    assert rights.refusal(source, _block(sent), listed_now(load_book(office.market), time_ns())) == ""
    office.journal = office.journal_with(sent)
    states = [one.state for one in JournalFloor(office.journal, CODE).trades()]
    assert states == ["corrected", "confirmed", "tentative"]
    assert main(["floor", "trades", str(office.journal), "--limit", "1", "--json"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert (row["price"], row["right_price"], row["right_quantity"]) == ("0.1002", "0.1000", 80)
    assert main(["floor", "trades", str(office.journal)]) == 0
    assert "110." in capsys.readouterr().out, "the volume as it stands"
    assert main(["floor", "verify", str(office.journal)]) == 0
    assert JournalFloor(office.journal, CODE).verify().is_equal


def test_verify_checks_the_signatures_of_corrections_by_a_roster(
    office: Office, capsys: pytest.CaptureFixture[str]
) -> None:
    assert office.correct(1, "--void") == 0
    assert office.countersign() == 0
    (sent,) = office.sent
    roster = ["--roster", str(office.market.keys_directory / "roster.bin")]
    capsys.readouterr()

    def verified(correction: Correction, *options: str) -> tuple[int, dict[str, object]]:
        code = main(["floor", "verify", str(office.journal_with(correction)), "--json", *options])
        found = json.loads(capsys.readouterr().out)
        return code, {name: found[name] for name in ("corrections", "signed", "unchecked")}

    assert verified(sent) == (0, {"corrections": 1, "signed": 0, "unchecked": 1})
    journal = str(office.journal_with(sent, instant=time_ns()))
    assert main(["floor", "verify", journal, *roster]) == 0
    said = capsys.readouterr().out
    assert "1 correction signed by two operators of a roster. Not checked: whether the market's file" in said
    once = sent._replace(signatures=sent.signatures[:1])
    anna, ben = sent.signatures
    swapped = sent._replace(signatures=(anna._replace(value=ben.value), ben._replace(value=anna.value)))
    for wrong, why in ((once, "1 signature,"), (swapped, "does not fit"), (sent._replace(price=7, quantity=5), "fit")):
        journal = str(office.journal_with(wrong, instant=time_ns()))
        assert main(["floor", "verify", journal, *roster]) == 1
        said = capsys.readouterr().out
        assert "UNSIGNED: 1 correction" in said
        assert why in said
        assert "EQUAL" not in said


def test_a_void_trade_is_final(office: Office, capsys: pytest.CaptureFixture[str]) -> None:
    assert office.correct(2, "--void") == 0
    assert office.countersign() == 0
    assert "void. Signed by anna and ben." in capsys.readouterr().out
    office.journal = office.journal_with(*office.sent)
    assert office.correct(2, "--price", "0.1000") == 2
    assert "void already, which is final" in capsys.readouterr().err


@pytest.mark.parametrize(
    "trade, options, words",
    [
        (9, ["--void"], "9 is unknown: the journal has trades up to 3; isocast floor trades lists them"),
        (3, ["--void"], "3 is tentative in this journal: only a confirmed one is corrected; wait for it"),
        (1, [], "either that the trade is void, or what is right of it"),
        (1, ["--void", "--price", "0.1"], "either that the trade is void, or what is right of it"),
        (1, ["--quantity", "101"], "more than was traded"),
        (1, ["--price", "0.10015"], "finer than"),
        (1, ["--price", "0.1002"], "cannot be corrected so"),
        (1, ["--void", "--reason", "x" * 121], "at most 120 printable"),
    ],
)
def test_a_proposal_that_would_not_count_is_refused(
    office: Office, capsys: pytest.CaptureFixture[str], trade: int, options: list[str], words: str
) -> None:
    assert office.correct(trade, *options) == 2
    assert words in " ".join(capsys.readouterr().err.split())
    assert not (office.folder / "paper").exists()


def test_the_same_operator_twice_a_stranger_and_a_revoked_key_do_not_count(
    office: Office, capsys: pytest.CaptureFixture[str]
) -> None:
    assert office.correct(1, "--void", key="a") == 2
    assert "the key of nobody who may correct trades of XISO now: operator, anna, ben may" in capsys.readouterr().err
    assert office.correct(1, "--void") == 0
    assert office.countersign(key="anna") == 2
    assert "anna has signed this already: another one of operator, anna, ben" in capsys.readouterr().err
    assert office.sent == []
    save_revocation(office.market, revocation_of(office.market, "anna"))
    assert office.countersign() == 2
    assert "have it proposed and signed again" in capsys.readouterr().err
    assert office.countersign(key="anna") == 2
    assert office.sent == []


def test_a_second_correction_of_one_version_and_a_replay_are_refused(
    office: Office, capsys: pytest.CaptureFixture[str]
) -> None:
    assert office.correct(1, "--price", "0.1000") == 0
    assert office.countersign() == 0
    later = office.journal_with(*office.sent)
    capsys.readouterr()
    assert office.countersign(key="operator", journal=later) == 2
    assert "was corrected meanwhile, or by this very paper: propose again" in " ".join(capsys.readouterr().err.split())
    assert len(office.sent) == 1
    office.journal = later
    assert office.correct(1, "--price", "0.0999") == 0
    assert read_proposal(office.folder / "paper").correction.version == 2


def test_a_paper_that_was_changed_or_is_none_is_refused(office: Office, capsys: pytest.CaptureFixture[str]) -> None:
    assert office.correct(1, "--price", "0.1000") == 0
    paper = office.folder / "paper"
    proposal = read_proposal(paper)
    raw = encode_correction(proposal.correction._replace(price=999))
    paper.write_text(f"isocast-correction {CODE} {raw.hex()}\n")
    assert office.countersign() == 2
    assert "a signature that does not fit" in capsys.readouterr().err
    other = proposal.correction.trade._replace(quantity=99)
    raw = encode_correction(proposal.correction._replace(trade=other))
    paper.write_text(f"isocast-correction {CODE} {raw.hex()}\n")
    assert office.countersign() == 2
    assert "another one in this journal than in the proposal" in " ".join(capsys.readouterr().err.split())
    paper.write_text("something else\n")
    assert office.countersign() == 2
    assert "is no proposal: isocast floor correct writes one" in capsys.readouterr().err
    assert office.sent == []


def test_a_floor_without_correctors_says_whom_to_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    office = Office(tmp_path, monkeypatch)
    text = office.file.read_text().replace('correctors = ["operator", "anna", "ben"]\n', "")
    office.file.write_text(text)
    assert office.correct(1, "--void") == 2
    assert "nobody may correct trades of XISO: name two or more operators there" in capsys.readouterr().err
    office.file.write_text(text.replace('sources = ["floor"]', 'sources = ["floor"]\ncorrectors = ["anna"]'))
    assert office.correct(1, "--void") == 2
    assert "must name two operators or more" in capsys.readouterr().err
