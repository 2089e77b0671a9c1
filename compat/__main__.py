"""python -m plait.compat SCRIPT [ARGUMENTS ...]"""

import sys

from .install import main

main(sys.argv[1:])
