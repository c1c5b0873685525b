"""What follows from a solver in the weights: which edits break it, how many layers it needs, and what can be spared.

"Richardson" in the places is arXiv 2605.08475; its abstract says that ablations support the interpretation. What it
does not say is read as a prediction, and the place says so. Privacy is out of scope. KRR as in `criteria.processes`.
"""

from analyses.claims.claim import Band, Criterion
from analyses.claims.criteria.processes import EXPERIMENTS, RICHARDSON, THEOREM

CONSEQUENCES: dict[str, dict[str, Criterion]] = {
    "kernel-swap": {
        "linear": Criterion(
            quantity="squared error of gp-softmax with linear attention in every layer over its own, output norms "
            "matched, the seed that suffers less",
            published="ablations support the interpretation: another kernel breaks the model",
            place=EXPERIMENTS,
            holds=Band(low=2),
            partly=Band(low=1.1),
        ),
        "uniform": Criterion(
            quantity="the same with uniform attention",
            published="another kernel breaks the model",
            place=EXPERIMENTS,
            holds=Band(low=2),
            partly=Band(low=1.1),
        ),
        "laplace": Criterion(
            quantity="the same with a Laplace tail in place of the Gaussian one",
            published="another kernel breaks the model",
            place=EXPERIMENTS,
            holds=Band(low=2),
            partly=Band(low=1.1),
        ),
        "alignment": Criterion(
            quantity="metric C of preconditioned Richardson with linear attention in every layer less that of the "
            "model itself, output norms matched, the seed that suffers less",
            published="and with it the alignment with Richardson iteration",
            place=EXPERIMENTS,
            holds=Band(high=-0.1),
            partly=Band(high=-0.02),
        ),
    },
    "softmax-to-linear": {
        "retrained": Criterion(
            quantity="squared error of gp-linear over that of gp-softmax, same prompts, steps and size, worst pair of "
            "seeds",
            published="softmax attention is needed",
            place=EXPERIMENTS,
            holds=Band(low=1.5),
            partly=Band(low=1.1),
        ),
        "excess": Criterion(
            quantity="excess of gp-linear's squared error over KRR's, over that of gp-softmax, worst pair of seeds",
            published="softmax attention is needed",
            place=EXPERIMENTS,
            holds=Band(low=2),
            partly=Band(low=1.2),
        ),
        "laplace": Criterion(
            quantity="excess over KRR of gp-softmax on Laplace data less that of gp-laplace, over KRR's error, worst "
            "pair of seeds",
            published="the kernel that a model solves with is that of its training data",
            place=f"{EXPERIMENTS}, read as a prediction",
            holds=Band(low=0.05),
            partly=Band(low=0.0),
        ),
    },
    "early-exit": {
        "layers": Criterion(
            quantity="layers of six after which the model's own read-out is within 1 % of its final squared error, "
            "gp-softmax, the seed that needs fewer",
            published="later steps of a converging iteration add little: fewer layers do",
            place=f"{THEOREM}, read as a prediction for trained models",
            holds=Band(high=4),
            partly=Band(high=5),
        ),
        "probe-layers": Criterion(
            quantity="the same by linear probes fitted to KRR",
            published="fewer layers do",
            place=f"{THEOREM}, read as a prediction for trained models",
            holds=Band(high=4),
            partly=Band(high=5),
        ),
        "flops": Criterion(
            quantity="share of the floating-point operations that the fewest such layers save",
            published="the layers left out",
            place=f"{THEOREM}, read as a prediction for trained models",
            holds=Band(low=0.3),
            partly=Band(low=0.1),
        ),
    },
    "context-reuse": {
        "equal": Criterion(
            quantity="largest difference of answers with the context computed once from those of whole forward passes, "
            "float64, over the size of the answers",
            published="queries never write to the context",
            place=f"{RICHARDSON}, the form of the prompt",
            holds=Band(high=1e-12),
            partly=Band(high=1e-8),
        ),
        "flops": Criterion(
            quantity="floating-point operations of 64 prompts of one context and one query each over those with the "
            "context computed once, 32 points",
            published="the context is paid once",
            place=f"{RICHARDSON}, the form of the prompt",
            holds=Band(low=10),
            partly=Band(low=3),
        ),
        "time": Criterion(
            quantity="the same in time, medians of alternating runs",
            published="the context is paid once",
            place=f"{RICHARDSON}, the form of the prompt",
            holds=Band(low=5),
            partly=Band(low=2),
        ),
    },
    "mixed-precision": {
        "bf16": Criterion(
            quantity="squared error of gp-softmax with all weights rounded to bf16 over its own, worse seed",
            published="an iteration that contracts forgives rounding",
            place=f"{THEOREM}, read as a prediction",
            holds=Band(high=1.05),
            partly=Band(high=1.5),
        ),
        "order": Criterion(
            quantity="excess squared error of the configuration that the layers' sensitivities suggest (half of the "
            "layers int4, half int8) over the median of random orders at equal bits, worse seed",
            published="sensitivities measured a layer at a time tell which layers to keep precise",
            place="the usual practice of mixed precision",
            holds=Band(high=0.8),
            partly=Band(high=1.0),
        ),
    },
    "robustness": {
        "kernels": Criterion(
            quantity="of Matérn ½, Matérn 3/2, and RBF of half and of twice the lengthscale, those on which gp-softmax "
            "is nearer to the KRR of its training kernel than to that of the data's, both seeds",
            published="the model solves with the kernel it learned",
            place=f"{EXPERIMENTS}, read as a prediction",
            holds=Band(low=4),
            partly=Band(low=2),
        ),
        "real": Criterion(
            quantity="squared error of gp-softmax on the diabetes data (body-mass index to progression, standardised) "
            "over that of KRR with the training kernel and λ, worse seed",
            published="the algorithm carries over to data of no Gaussian process",
            place=f"{EXPERIMENTS}, read as a prediction",
            holds=Band(high=1.1),
            partly=Band(high=1.5),
        ),
        "real-distance": Criterion(
            quantity="distance of its answers from that KRR's over their size, rms, worse seed",
            published="the algorithm carries over",
            place=f"{EXPERIMENTS}, read as a prediction",
            holds=Band(high=0.15),
            partly=Band(high=0.4),
        ),
    },
}
