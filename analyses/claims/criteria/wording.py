"""The second-order reading of in-context learning as others put it in words: w ← w − η H⁻¹ g and what is said of it."""

from analyses.claims.claim import Band, Criterion

SOURCE = "the second-order reading of in-context learning, in words"

WORDING: dict[str, dict[str, Criterion]] = {
    "wording": {
        "full": Criterion(
            quantity="iterations to a relative error of .02, d = 20, κ = 100, theory constants, median over prompts",
            published="5–8 iterations to an error of .02",
            place=f"{SOURCE}, full visibility",
            holds=Band(5, 8),
            partly=Band(3, 12),
        ),
        "distributed": Criterion(
            quantity="iterations to an error of .03 on 4 machines of 20 rows, d = 20, κ = 100, median over prompts",
            published="8–12 iterations to an error of .03 with 4 nodes",
            place=f"{SOURCE}, distributed rows",
            holds=Band(8, 12),
            partly=Band(5, 18),
        ),
        "rank-limited": Criterion(
            quantity="iterations to an error of .025 with sketches of rank 10, d = 20, κ = 100, median over prompts",
            published="6–10 iterations to an error of .025 with r = 10",
            place=f"{SOURCE}, rank-limited heads",
            holds=Band(6, 10),
            partly=Band(4, 15),
        ),
        "damped-hessian": Criterion(
            quantity="largest relative residual over layers of γ_l p_l(g)² ≈ η_l/(g + λ_l) on eagle-d10's spectrum",
            published="the Hessian estimate is H = G + λI",
            place=f"{SOURCE}, w ← w − η H⁻¹ g",
            holds=Band(high=0.1),
            partly=Band(high=0.3),
        ),
        "low-rank-newton": Criterion(
            quantity="largest relative residual over layers of eagle-lowrank's step as −η U (Uᵀ G U + λI)⁻¹ Uᵀ g, U "
            "its own r directions, η and λ fitted",
            published="a rank-limited head is a low-rank Newton step",
            place=f"{SOURCE}, rank-limited heads",
            holds=Band(high=0.1),
            partly=Band(high=0.3),
        ),
        "sign": Criterion(
            quantity="loss after one step w − η H⁻¹ g over the loss before, with g = Σ x (y − wᵀx) as it is written",
            published="w ← w − η H⁻¹ g descends",
            place=f"{SOURCE}, definition of g",
            holds=Band(high=0.999),
            partly=Band(high=1.0),
        ),
        "rate": Criterion(
            quantity="order of convergence of the constants that training finds, (4/3, 4/3), κ = 1e3",
            published="second order, with an error that falls like ρ^k",
            place=f"{SOURCE}, convergence",
            holds=Band(1.8, 2.2),
            partly=Band(1.5, 2.5),
        ),
        "prefix-moments": Criterion(
            quantity="largest relative distance, over tokens, of a causal linear model's S_xx and S_xy at token k from "
            "the moments of the examples before it",
            published="each example updates the state",
            place=f"{SOURCE}, online reading",
            holds=Band(high=1e-10),
            partly=Band(high=1e-4),
        ),
        "recursive-least-squares": Criterion(
            quantity="median relative distance at the last token of a 4-layer causal EAGLE's weights from recursive "
            "least squares",
            published="the state follows recursive least squares",
            place=f"{SOURCE}, online reading",
            holds=Band(high=0.05),
            partly=Band(high=0.3),
        ),
    },
}
