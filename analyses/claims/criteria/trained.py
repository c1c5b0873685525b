"""What trained models do."""

from analyses.claims.claim import Band, Criterion

EAGLE = "EAGLE"

TRAINED: dict[str, dict[str, Criterion]] = {
    "same-rule": {
        "words": Criterion(
            quantity="of the trained regimes (full, rank-limited, distributed) and their seeds, the share in which "
            "EAGLE's two words alone explain ≥ .99 of the function of every live layer",
            published="the same update rule in three regimes",
            place=f"{EAGLE}, abstract",
            holds=Band(low=1.0),
            partly=Band(low=0.5),
        ),
        "coefficients": Criterion(
            quantity="largest over smallest |η_0|‖A‖² among the regimes that run EAGLE's two words",
            published="one rule, free of parameters in units of 1/‖A_l‖²",
            place=f"{EAGLE}, abstract and the section on the emergent algorithm",
            holds=Band(high=1.25),
            partly=Band(high=2.0),
        ),
        "fidelity-full": Criterion(
            quantity="largest over layers of layer fidelity (squared error over size of Z) over the published one",
            published="2.36, 5.27, 3.70, 2.16 ×1e-4 in layers 1–4",
            place=f"{EAGLE}, the table of layer-wise fidelity",
            holds=Band(high=1.0),
            partly=Band(high=3.0),
        ),
        "fidelity-distributed": Criterion(
            quantity="the same for one head a machine, 3 × 6 rows",
            published="0.62, 1.40, 1.28, 1.32 ×1e-4",
            place=f"{EAGLE}, the table of layer-wise fidelity",
            holds=Band(high=1.0),
            partly=Band(high=3.0),
        ),
        "fidelity-lowrank": Criterion(
            quantity="the same for heads of rank 5 of 18",
            published="0.01, 0.02, 0.13, 0.14 ×1e-4",
            place=f"{EAGLE}, the table of layer-wise fidelity",
            holds=Band(high=1.0),
            partly=Band(high=3.0),
        ),
    },
    "depth": {
        "families": Criterion(
            quantity="of L = 1 … 5, the depths named as expected: gradient descent at L = 1 (or a tie), EAGLE deeper",
            published="shallow models run a first-order method, deep ones the second-order rule",
            place=f"{EAGLE}, the centralised setting",
            holds=Band(low=5),
            partly=Band(low=3),
        ),
        "order": Criterion(
            quantity="error at L = 5 over (error at L = 4 squared over error at L = 3): 1 for second order or better",
            published="second order in depth",
            place=f"{EAGLE}, the centralised setting",
            holds=Band(high=1.0),
            partly=Band(high=10.0),
        ),
    },
    "pruning": {
        "one-head": Criterion(
            quantity="error with one head a layer (the largest of the canonical sum) over that with 8 heads",
            published="8 heads can be pruned to 1",
            place=f"{EAGLE}, the experiment on pruning",
            holds=Band(high=1.1),
            partly=Band(high=2.0),
        ),
        "as-trained": Criterion(
            quantity="error with the largest of the heads as trained over that with 8 heads",
            published="8 heads can be pruned to 1",
            place=f"{EAGLE}, the experiment on pruning",
            holds=Band(high=1.1),
            partly=Band(high=2.0),
        ),
    },
    "quantisation": {
        "three": Criterion(
            quantity="error with the entries of each Q and V in 3 clusters over that of the model",
            published="weights fall into a few clusters",
            place=f"{EAGLE}, the experiment on quantisation",
            holds=Band(high=1.1),
            partly=Band(high=2.0),
        ),
        "two": Criterion(
            quantity="error with the entries of each Q in 2 clusters and of each V in 3 over that of the model",
            published="weights fall into a few clusters",
            place=f"{EAGLE}, the experiment on quantisation",
            holds=Band(high=1.1),
            partly=Band(high=2.0),
        ),
    },
    "emergence": {
        "explained": Criterion(
            quantity="least function explained by the two words over the live layers at the end of training",
            published="the rule emerges in training",
            place=f"{EAGLE}, the section on training dynamics",
            holds=Band(low=0.99),
            partly=Band(low=0.9),
        ),
        "together": Criterion(
            quantity="step at which the two words explain .99 in every live layer over the step at which the error is "
            "within 10 times its final value",
            published="the error falls as the rule appears",
            place=f"{EAGLE}, the section on training dynamics",
            holds=Band(0.5, 2.0),
            partly=Band(0.1, 10.0),
        ),
    },
    "schedule": {
        "bounded": Criterion(
            quantity="error of eagle-d10's two-word rule over the best schedule found, rms on its training spectrum",
            published="training finds the best rule of its depth",
            place="MATH §4: the schedule as a minimax problem in scalars",
            holds=Band(high=1.1),
            partly=Band(high=3.0),
        ),
        "theory-order": Criterion(
            quantity="order of (|η|, γ) = (1/3, 1) at κ = 1e3",
            published="second order",
            place=f"{EAGLE}, Theorem 1",
            holds=Band(1.8, 2.2),
            partly=Band(1.5, 2.5),
        ),
        "published-floor": Criterion(
            quantity="relative error at which (1, 1.9) with the exact current norm stops falling, κ = 1e3",
            published="(|η|, γ) ≈ (1, 1.9) in units of 1/‖A_l‖²",
            place=f"{EAGLE}, the emergent algorithm's constants",
            holds=Band(high=1e-8),
            partly=Band(high=1e-2),
        ),
        "t3-rate": Criterion(
            quantity="factor a layer of T₃ = (4/3, 4/3) in σ r on [0, 1], sup norm",
            published="1/3 exactly, whatever κ",
            place="MATH §4: Markov's argument for T₃",
            holds=Band(1 / 3 - 1e-10, 1 / 3 + 1e-10),
            partly=Band(0.3, 0.37),
        ),
    },
}
