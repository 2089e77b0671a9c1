#!/usr/bin/env bash
# Puts the real Apache MXNet 1.9.1 (CPU) into an environment of its own: it needs NumPy 1.23.
# usage: install.sh FOLDER
set -euo pipefail
folder=${1:?usage: install.sh FOLDER}
python3 -m venv "$folder"
"$folder/bin/pip" install -q --disable-pip-version-check 'mxnet==1.9.1' 'numpy==1.23.5' 'scipy==1.10.1' requests
"$folder/bin/python" -W ignore -c 'import mxnet; print("MXNet", mxnet.__version__)'
