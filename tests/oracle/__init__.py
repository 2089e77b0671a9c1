"""Every operator in the real MXNet and in plait: what differs. How to run it: __main__.py."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent))  # samples.py
