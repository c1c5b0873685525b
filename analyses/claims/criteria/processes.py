"""Softmax transformers as kernel solvers: the laws of the construction, and what trained models resemble.

"Richardson" in the places is arXiv 2605.08475, "Transformers Can Implement Preconditioned Richardson Iteration for
In-Context Gaussian Kernel Regression". KRR is kernel ridge regression with the
covariance and the noise variance of the prompts, the best answer there is.
"""

from analyses.claims.claim import Band, Criterion

RICHARDSON = "arXiv 2605.08475"
THEOREM, EXPERIMENTS = f"{RICHARDSON}, the main theorem", f"{RICHARDSON}, the experiments"
MATH6, MATH7 = "MATH §6", "MATH §7"

PROCESSES: dict[str, dict[str, Criterion]] = {
    "richardson-laws": {
        "depth": Criterion(
            quantity="R² of the number of blocks against log(1/ε), ε the largest error against KRR; exact products, "
            "N = 32, λ = 0.1 N",
            published="depth O(log 1/ε)",
            place=THEOREM,
            holds=Band(low=0.99),
            partly=Band(low=0.95),
        ),
        "width": Criterion(
            quantity="exponent of the largest error in the segments m of the squares, as many blocks as it takes",
            published="width O(√(N/ε)), so error ∝ m⁻²",
            place=THEOREM,
            holds=Band(-2.1, -1.9),
            partly=Band(-2.3, -1.7),
        ),
        "width-points": Criterion(
            quantity="exponent in N of the width for ε, at fixed λ",
            published="width O(√(N/ε)): ½",
            place=THEOREM,
            holds=Band(0.4, 0.6),
            partly=Band(0.3, 0.7),
        ),
        "depth-points": Criterion(
            quantity="blocks for ε = 1e-3 at N = 128 over those at N = 16, λ = 0.1 N, exact products",
            published="the depth does not grow with N",
            place=f"{THEOREM}, depth O(log 1/ε)",
            holds=Band(0.8, 1.25),
            partly=Band(0.5, 2.0),
        ),
        "depth-points-fixed": Criterion(
            quantity="the same at λ = 1.6 for both",
            published="the depth does not grow with N",
            place=f"{THEOREM}, read with a fixed λ",
            holds=Band(0.8, 1.25),
            partly=Band(0.5, 2.0),
        ),
        "never-diverges": Criterion(
            quantity="prompts of 2,000 (N, λ, lengthscale and clustering drawn wide, isolated points among them) on "
            "which ω = 1 with P = D + λI raises the error in the norm in which it contracts",
            published="converges for all data and all λ > 0",
            place=MATH6,
            holds=Band(0, 0),
            partly=Band(0, 0),
        ),
        "isolated": Criterion(
            quantity="largest error after 40 blocks over that after 4, of the network with P = D on a prompt with an "
            "isolated point and λ = 1.5",
            published="P = D alone diverges for λ > 1",
            place=MATH6,
            holds=Band(low=10),
            partly=Band(low=1.5),
        ),
        "causal": Criterion(
            quantity="distance of the causal network's answers from those of (tril(K) + λI) α = y over their size",
            published="a causal mask solves tril(K) + λI",
            place=MATH6,
            holds=Band(high=1e-3),
            partly=Band(high=1e-2),
        ),
        "blocks": Criterion(
            quantity="transformer blocks a step",
            published="about two blocks a step in the paper",
            place=THEOREM,
            holds=Band(2, 2),
            partly=Band(1, 3),
        ),
    },
    "richardson-alignment": {
        "built-readout": Criterion(
            quantity="A-lin distance of the built network's blocks from preconditioned Richardson, by its own read-out",
            published="a network that runs the algorithm is recognised",
            place=f"{MATH7}: the positive control",
            holds=Band(high=1e-3),
            partly=Band(high=0.01),
        ),
        "built-rivals": Criterion(
            quantity="the smallest A-lin distance of a rival from it",
            published="and told from its rivals",
            place=f"{MATH7}: the positive control",
            holds=Band(low=0.015),
            partly=Band(low=0.005),
        ),
        "trained": Criterion(
            quantity="of gp-softmax and gp-softmax-d2, two seeds each, those to which preconditioned Richardson is "
            "nearest or tied, by the metric of the verdict and probes fitted to KRR",
            published="error profiles align most consistently with preconditioned Richardson iteration",
            place=EXPERIMENTS,
            holds=Band(low=4),
            partly=Band(low=2),
        ),
        "alone": Criterion(
            quantity="of the same four, those to which it is nearest without a tie",
            published="most consistently with preconditioned Richardson, among the solvers compared",
            place=EXPERIMENTS,
            holds=Band(low=4),
            partly=Band(low=1),
        ),
        "one-step": Criterion(
            quantity="of the same four, those whose blocks are as many steps each: the A-lin distance is at most 1.1 "
            "of the distance A of a free assignment",
            published="a block carries out steps of the iteration",
            place=EXPERIMENTS,
            holds=Band(low=4),
            partly=Band(low=1),
        ),
        "gpt2": Criterion(
            quantity="1 if preconditioned Richardson is nearest or tied in both seeds of gp-gpt2, ½ in one",
            published="GPT-2-style transformers align with it",
            place=EXPERIMENTS,
            holds=Band(1, 1),
            partly=Band(low=0.5),
        ),
        "untrained": Criterion(
            quantity="of five random-initialised networks, those that a solver is named for",
            published="none",
            place=f"{MATH7}: the negative control",
            holds=Band(0, 0),
            partly=Band(0, 0),
        ),
    },
    "clustered-contrast": {
        "softmax": Criterion(
            quantity="metric C of preconditioned Richardson less that of gradient descent on prompts of which 60 % "
            "cluster, gp-softmax, worse seed",
            published="softmax follows the preconditioned iteration",
            place=f"{MATH7}: +.05 ± .01 in a prototype",
            holds=Band(low=0.0),
            partly=Band(low=-0.01),
        ),
        "linear": Criterion(
            quantity="the same for gp-linear, the seed with the larger value",
            published="linear attention does not",
            place=f"{MATH7}: −.07 ± .015 in a prototype",
            holds=Band(high=0.0),
            partly=Band(high=0.01),
        ),
    },
}
