from analyses.claims import wording
from analyses.claims.claim import Settings
from analyses.claims.criteria import CRITERIA
from analyses.claims.wording import corrections, counts, hessians, low_rank, online


def test_parts_make_one_claim(tmp_path):
    parts = [
        counts.measure(counts.Sizes(prompts=2, steps=30), Settings()),
        hessians.damped("eagle-d10"),
        low_rank.measure("eagle-d10", 4, Settings()),
        corrections.measure(2, Settings()),
        online.measure(online.Sizes(n=12, prompts=2), Settings()),
    ]
    findings = wording.combine(parts)
    assert set(findings.measurements) == set(CRITERIA["wording"])
    assert all(part.table in findings.table for part in parts)
    assert findings.draw is not None
    findings.draw(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 0
