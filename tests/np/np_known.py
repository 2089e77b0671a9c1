"""Where plait is meant to differ from cases.json, and why."""

RANDOM = {"npx.dropout"}
FROM_NUMPY = "of the dtype of its argument: MXNet called NumPy, which gave a float64"
DIFFERENT: dict[str, str] = {
    **dict.fromkeys(
        (
            *("np.cov", "np.corrcoef", "np.float_power", "np.interp", "np.nanpercentile"),
            *("np.nanquantile", "np.histogram2d", "np.histogramdd"),
        ),
        FROM_NUMPY,
    ),
    "np.vander": "of the dtype of x: MXNet called NumPy, which made a float64 of a float32",
}
# fronts whose gradient has no gradient: why
NO_SECOND_ORDER: dict[str, str] = {}
