"""Where plait is meant to differ from cases.json, and why."""

RANDOM = {"npx.dropout"}
# name -> dtypes of its results, those of the arguments: MXNet called NumPy, which made float64
DTYPES: dict[str, list[str]] = {
    **{f"np.{name}": ["float32"] for name in ("cov", "corrcoef", "float_power", "interp")},
    **{f"np.{name}": ["float32"] for name in ("nanpercentile", "nanquantile", "polyint", "vander")},
    "np.histogram2d": ["float64", "float32", "float32"],
    "np.histogramdd": ["float64", "float32", "float32", "float32"],
}
