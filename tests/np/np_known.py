"""Where plait is meant to differ from cases.json, and why."""

RANDOM = {"npx.dropout"}
DIFFERENT: dict[str, str] = {}
# fronts whose gradient has no gradient: why
NO_SECOND_ORDER: dict[str, str] = {}
