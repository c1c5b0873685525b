"""What is read out of activations: one layer as a gradient step, more layers, probes, and what probes do not show.

"Oswald" in the places is von Oswald et al. 2023, arXiv 2212.07677; "Akyürek" Akyürek et al. 2023, arXiv 2211.15661.
"""

from analyses.claims.claim import Band, Criterion

OSWALD, AKYUREK = "von Oswald et al., arXiv 2212.07677", "Akyürek et al., arXiv 2211.15661"
WORDS = "the second-order reading of in-context learning, in words"

DECODING: dict[str, dict[str, Criterion]] = {
    "one-step": {
        "loss": Criterion(
            quantity="squared error of a trained linear-attention layer over that of one gradient step, the step size "
            "by line search; d = 10, 10 points, the seed furthest from 1",
            published="the losses are identical",
            place=f"{OSWALD}, section 3 and figure 2",
            holds=Band(0.99, 1.01),
            partly=Band(0.95, 1.05),
        ),
        "predictions": Criterion(
            quantity="distance of its predictions from the gradient step's over their size, rms over prompts, worst "
            "seed",
            published="the predictions do not differ",
            place=f"{OSWALD}, figure 2, L2 distance of predictions",
            holds=Band(high=0.05),
            partly=Band(high=0.2),
        ),
        "cosine": Criterion(
            quantity="cosine of ∂prediction/∂query with that of the gradient step, mean over prompts, worst seed",
            published="almost perfect alignment, a cosine of 1",
            place=f"{OSWALD}, figure 2, model cosine",
            holds=Band(low=0.99),
            partly=Band(low=0.95),
        ),
        "sensitivity": Criterion(
            quantity="distance of ∂prediction/∂query from that of the gradient step over its size, rms over prompts, "
            "worst seed",
            published="the sensitivities do not differ",
            place=f"{OSWALD}, figure 2, model difference",
            holds=Band(high=0.05),
            partly=Band(high=0.2),
        ),
        "weights": Criterion(
            quantity="cosine of the layer's weights, as the cubic map from tokens to the answer, with those of the "
            "construction, worst seed",
            published="the trained weights are those of the construction",
            place=f"{OSWALD}, proposition 1 and section 3",
            holds=Band(low=0.99),
            partly=Band(low=0.95),
        ),
        "interpolation": Criterion(
            quantity="squared error with trained and constructed Q and V averaged, scales matched, over the trained "
            "layer's, the seed furthest from 1",
            published="interpolated weights have the same loss",
            place=f"{OSWALD}, figure 2, interpolation",
            holds=Band(high=1.01),
            partly=Band(high=1.05),
        ),
    },
    "more-layers": {
        "nearer": Criterion(
            quantity="of models of 2, 3 and 4 layers, those whose predictions are nearer to GD++ than to gradient "
            "descent of as many steps, constants of both by line search",
            published="more layers go beyond gradient descent and match GD++",
            place=f"{OSWALD}, section 4 and figure 3",
            holds=Band(low=3),
            partly=Band(low=2),
        ),
        "cosine": Criterion(
            quantity="cosine of ∂prediction/∂query with GD++'s, mean over prompts, the worst of the three depths",
            published="almost perfect alignment with GD++",
            place=f"{OSWALD}, figure 3, model cosine",
            holds=Band(low=0.99),
            partly=Band(low=0.95),
        ),
        "loss": Criterion(
            quantity="rms error of GD++ over the model's, the largest of the three depths",
            published="GD++ has the loss of the trained model",
            place=f"{OSWALD}, figure 3",
            holds=Band(0.9, 1.1),
            partly=Band(0.5, 2.0),
        ),
        "distance": Criterion(
            quantity="distance of the model's predictions from GD++'s over the model's own error, rms over prompts, "
            "the largest of the three depths",
            published="the model is GD++",
            place=f"{OSWALD}, section 4",
            holds=Band(high=0.3),
            partly=Band(high=1.0),
        ),
    },
    "decodable": {
        "w": Criterion(
            quantity="R² of a linear probe of the least-squares weights in a softmax transformer, at its best depth, "
            "less the largest of the controls there (shuffled, untrained, prompt alone)",
            published="w is decoded from activations, the control task is not",
            place=f"{AKYUREK}, section 5",
            holds=Band(low=0.3),
            partly=Band(low=0.1),
        ),
        "xty": Criterion(
            quantity="the same for XᵀY",
            published="the moment vector XᵀY is decoded",
            place=f"{AKYUREK}, section 5",
            holds=Band(low=0.3),
            partly=Band(low=0.1),
        ),
        "hessian": Criterion(
            quantity="the same for XᵀX",
            published="the moments of the closed form are maintained",
            place=f"{AKYUREK}, section 5, and {WORDS}",
            holds=Band(low=0.3),
            partly=Band(low=0.1),
        ),
        "late": Criterion(
            quantity="depth at which w is decoded best, over the number of layers",
            published="w is decoded in late layers",
            place=f"{AKYUREK}, section 5 and the figure of probes by layer",
            holds=Band(low=0.66),
            partly=Band(low=0.5),
        ),
        "order": Criterion(
            quantity="layers from the depth at which XᵀY is decoded best to that of w",
            published="the moment vector before the weights",
            place=f"{AKYUREK}, section 5 and the figure of probes by layer",
            holds=Band(low=1),
            partly=Band(low=0),
        ),
        "linear-attention": Criterion(
            quantity="R² of w from the second moments of the activations of linear attention, at its best depth, less "
            "the largest control there",
            published="w is decoded from activations",
            place="MATH §5: features for models that are odd in each token",
            holds=Band(low=0.3),
            partly=Band(low=0.1),
        ),
        "parity": Criterion(
            quantity="the largest R² over depths of a linear token probe of w in linear attention",
            published="0, whatever the layer",
            place="MATH §5: parity",
            holds=Band(high=0.02),
            partly=Band(high=0.1),
        ),
    },
    "predictor": {
        "distance": Criterion(
            quantity="distance of a softmax transformer's predictions from those of the Bayes predictor over their "
            "size, rms over prompts, 20 points, d = 5, at the noise of training",
            published="the predictor is that of minimal Bayes risk",
            place=f"{AKYUREK}, section 4, noisy regression",
            holds=Band(high=0.1),
            partly=Band(high=0.25),
        ),
        "nearest": Criterion(
            quantity="of 5, 10, 15 and 20 points, those at which Bayes is nearer to it than least squares and than "
            "gradient descent of 1 … L steps with the step size nearest to it",
            published="nearer to Bayes than to gradient descent or least squares",
            place=f"{AKYUREK}, section 4",
            holds=Band(low=4),
            partly=Band(low=3),
        ),
        "over-gd": Criterion(
            quantity="distance from the nearest gradient descent of 1 … L steps over that from Bayes, 10 points, at "
            "the noise of training",
            published="large models leave gradient descent for Bayes",
            place=f"{AKYUREK}, section 4, phases by model size",
            holds=Band(low=1.5),
            partly=Band(low=1.0),
        ),
        "adapts": Criterion(
            quantity="exponent b of λ ∝ (σ²)^b, λ the ridge penalty nearest to one model's predictions, over noise σ "
            "from a third of training's to 3 times, 10 points: 1 for Bayes at each noise, 0 for training's",
            published="ridge regression with the penalty of each noise",
            place=f"{AKYUREK}, section 4, noisy regression (there one model a noise)",
            holds=Band(0.8, 1.2),
            partly=Band(0.3, 1.5),
        ),
    },
    "probes-prove": {
        "probe": Criterion(
            quantity="R² of a linear probe of w on the mean of the context rows, best over depths that a later layer "
            "reads",
            published="probes prove that the model maintains w",
            place=WORDS,
            holds=Band(low=0.5),
            partly=Band(low=0.2),
        ),
        "controls": Criterion(
            quantity="that R² less the largest of the controls there (shuffled, untrained, prompt alone)",
            published="probes prove that the model maintains w",
            place=WORDS,
            holds=Band(low=0.3),
            partly=Band(low=0.1),
        ),
        "cause": Criterion(
            quantity="change of the prediction over δ·x when the context rows are moved so that the probed w moves by "
            "δ, slope over prompts: 1 if the model answers with that w, 0 if it does not use it",
            published="the model maintains w and answers with it",
            place=WORDS,
            holds=Band(0.8, 1.2),
            partly=Band(0.3, 1.7),
        ),
        "unread": Criterion(
            quantity="R² of the same probe after the last block, where nothing reads the context rows: 0 if a probe "
            "showed use",
            published="probes prove that the model maintains w",
            place=WORDS,
            holds=Band(high=0.05),
            partly=Band(high=0.2),
        ),
    },
}
