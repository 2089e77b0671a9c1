"""Where plait is meant to differ from cases.json, and why."""

RANDOM = {"npx.dropout"}
DIFFERENT: dict[str, str] = {}
