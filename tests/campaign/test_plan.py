"""A plan can be made again, and has every kind."""

from __future__ import annotations

from collections import Counter

from tests.campaign.faults import KINDS
from tests.campaign.plan import draw


def test_a_seed_gives_the_same_plan() -> None:
    assert draw(7, 60) == draw(7, 60)
    assert draw(7, 60) != draw(8, 60)


def test_every_kind_comes_about_as_often() -> None:
    counts = Counter(planned.kind for planned in draw(7, 2 * len(KINDS)))

    assert counts == dict.fromkeys(KINDS, 2)


def test_faults_last_as_long_as_their_kind_says() -> None:
    for planned in [*draw(7, 200), *draw(7, 200, long=True)]:
        kind = KINDS[planned.kind]
        longest = (kind.lasts_long or kind.lasts).longest
        assert kind.lasts.shortest <= planned.seconds <= longest
    assert max(planned.seconds for planned in draw(7, 500, long=True)) > 60
