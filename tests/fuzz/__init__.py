"""The project's fuzzer: `make fuzz`. docs/design/fuzzing.md says how it works."""
