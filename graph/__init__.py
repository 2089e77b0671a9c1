"""Graphs: typed nodes, inference, passes, programs, tiers, placement. No arrays, no users' API."""
