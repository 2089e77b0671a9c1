"""Where plait is meant to differ from cases.json, and why."""

RANDOM = {"npx.dropout"}
_GONE = "NumPy removed it; MXNet raised too"
_FLOAT64 = "of the dtype of its argument: MXNet called NumPy, which made float64 of float32"
DIFFERENT: dict[str, str] = {
    **{f"np.{name}": _FLOAT64 for name in ("cov", "corrcoef", "float_power", "interp")},
    **{f"np.{name}": _FLOAT64 for name in ("nanpercentile", "nanquantile")},
    **{f"np.{name}": _GONE for name in ("mirr", "npv", "ppmt", "pv", "rate")},
    "ndarray.broadcast_like": "the call lacks an argument: MXNet raised too",
    "np.histogram2d": "NumPy 2 keeps float32",
    "np.histogramdd": "NumPy 2 keeps float32",
    "np.vander": "of the dtype of x: MXNet called NumPy, which made a float64 of a float32",
}
# fronts whose gradient has no gradient: why
NO_SECOND_ORDER: dict[str, str] = {}
