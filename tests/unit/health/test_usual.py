"""What is usual for a job: learnt from its gaps, in bounded memory."""

from gangline.health.usual import BUCKETS, MAX_COUNT, UsualGaps


def learnt(*gaps: float) -> UsualGaps:
    usual = UsualGaps()
    for gap in gaps:
        usual = usual.with_gap(gap)
    return usual


def test_nothing_is_usual_at_first() -> None:
    assert (UsualGaps().high, UsualGaps().longest) == (0.0, 0.0)


def test_a_high_gap_is_rarely_exceeded() -> None:
    assert 2.0 <= learnt(*[2.0] * 40).high <= 4.0
    # One evaluation in many steps is not usual, but it is remembered.
    usual = learnt(*[2.0] * 60, 300.0, *[2.0] * 60)
    assert usual.high <= 4.0
    assert usual.longest == 300.0


def test_it_is_never_more_than_the_longest() -> None:
    assert learnt(300.0).high == 300.0


def test_what_was_long_ago_counts_less() -> None:
    assert learnt(*[300.0] * MAX_COUNT, *[2.0] * 12 * MAX_COUNT).high <= 4.0


def test_the_memory_is_bounded() -> None:
    usual = learnt(*[0.0, 1e-9, 1.0, 3.0, 1e9] * 200)
    assert len(usual.counts) == BUCKETS
    assert sum(usual.counts) <= MAX_COUNT + BUCKETS
    assert usual.total == 1000
