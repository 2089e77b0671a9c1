"""Where plait is meant to differ from cases.json, and why."""

RANDOM = {"npx.dropout"}
DIFFERENT: dict[str, str] = {
    "np.vander": "of the dtype of x: MXNet called NumPy, which made a float64 of a float32",
}
# fronts whose gradient has no gradient: why
NO_SECOND_ORDER: dict[str, str] = {}
