"""docs/deploy: the manifests have fields that Kubernetes knows, and the scripts run: the image's
and Slurm's, with stand-ins for what a test cannot call."""

import json
import os
import re
import shlex
import subprocess
import tomllib
from pathlib import Path

import pytest
from plait.tools import launch, serve

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "docs/deploy"
# by type, its fields; "name!": one that must be there. Others than these exist, for what is unused.
TYPES = json.loads((ROOT / "tests/fixtures/kubernetes.json").read_text())["types"]
QUANTITY = re.compile(r"\d+(\.\d+)?(m|k|Ki|M|Mi|G|Gi|T|Ti)?")
VALUES = {
    "string": lambda v: isinstance(v, str),
    "integer": lambda v: isinstance(v, int) and not isinstance(v, bool),
    "boolean": lambda v: isinstance(v, bool),
    "quantity": lambda v: isinstance(v, str) and bool(QUANTITY.fullmatch(v)),
    "port": lambda v: isinstance(v, (int, str)),
    "any": lambda v: True,
}


def problems(value, kind, path):
    """What of a value is not as its type says."""
    if isinstance(kind, list):
        wrong = [] if isinstance(value, list) else [f"{path}: not a list"]
        return wrong or [
            p for i, v in enumerate(value) for p in problems(v, kind[0], f"{path}[{i}]")
        ]
    if isinstance(kind, dict):
        return [p for k, v in value.items() for p in problems(v, kind["*"], f"{path}.{k}")]
    if kind in VALUES:
        return [] if VALUES[kind](value) else [f"{path}: {value!r} is no {kind}"]
    fields = {name.rstrip("!"): t for name, t in TYPES[kind].items()}
    needed = {name[:-1] for name in TYPES[kind] if name.endswith("!")}
    found = [f"{path}: needs {name}" for name in sorted(needed - set(value))]
    for name, part in value.items():
        if name in fields:
            found += problems(part, fields[name], f"{path}.{name}")
        else:
            found.append(f"{path}: {kind} has no field {name}")
    return found


def manifests(name):
    yaml = pytest.importorskip("yaml")
    return list(yaml.safe_load_all((DEPLOY / name).read_text()))


KINDS = {
    "mpijob.yaml": [("kubeflow.org/v2beta1", "MPIJob")],
    "trainjob.yaml": [
        ("trainer.kubeflow.org/v1alpha1", "TrainingRuntime"),
        ("trainer.kubeflow.org/v1alpha1", "TrainJob"),
    ],
    "inferenceservice.yaml": [
        ("serving.kserve.io/v1alpha1", "ServingRuntime"),
        ("serving.kserve.io/v1beta1", "InferenceService"),
    ],
}
JOBS = ["mpijob.yaml", "trainjob.yaml"]


@pytest.mark.parametrize("name", KINDS)
def test_fields_of_a_manifest(name):
    found = manifests(name)
    assert [(m["apiVersion"], m["kind"]) for m in found] == KINDS[name]
    assert [p for m in found for p in problems(m, m["kind"], m["kind"])] == []


def test_wrong_fields_are_found():
    manifest = manifests("mpijob.yaml")[0]
    manifest["spec"]["slotsPerworker"] = manifest["spec"].pop("slotsPerWorker")
    manifest["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"] = "2"
    del manifest["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]
    assert problems(manifest, "MPIJob", "MPIJob") == [
        "MPIJob.spec.mpiReplicaSpecs.Launcher: needs template",
        "MPIJob.spec.mpiReplicaSpecs.Worker.replicas: '2' is no integer",
        "MPIJob.spec: MPIJobSpec has no field slotsPerworker",
    ]


def containers(value):
    """Every dictionary with a command, wherever it is."""
    if isinstance(value, dict) and "command" in value:
        yield value
    for part in value.values() if isinstance(value, dict) else value:
        if isinstance(part, (dict, list)):
            yield from containers(part)


@pytest.mark.parametrize("name", JOBS)
def test_the_launcher_understands_a_manifests_command(name, tmp_path):
    found = [c for m in manifests(name) for c in containers(m) if "plait" in c["command"]]
    assert len(found) == 1
    words = found[0]["command"] + found[0]["args"]
    assert words[:4] == ["python", "-m", "plait", "launch"]
    args = launch._parser().parse_args(words[4:])
    assert (args.num_workers, args.restarts, args.command[0]) == (4, 3, "train.py")
    hostfile = tmp_path / "hostfile"  # as the operators write it for MPICH, for Open MPI
    for text in ("plait-worker-0.plait:2\nplait-worker-1.plait:2\n", "a.b slots=2\nc.d slots=2\n"):
        hostfile.write_text(text)
        args.hostfile = str(hostfile)
        assert [n for _, n in launch._hosts(args, 4)] == [2, 2]


# ---- servers ----


def checked_words(words, monkeypatch):
    """The options of the server, as it understands its arguments."""
    found = {}
    monkeypatch.setattr(serve, "serve", lambda make, *given: found.update(given=given) or 0)
    assert serve.main(words) == 0
    return found["given"]


def test_the_server_understands_the_arguments_of_a_manifest(monkeypatch):
    pytest.importorskip("uvicorn")
    runtime, service = manifests("inferenceservice.yaml")
    (container,) = runtime["spec"]["containers"]
    words = [w.replace("{{.Name}}", service["metadata"]["name"]) for w in container["args"]]
    assert checked_words(words, monkeypatch) == ("0.0.0.0", 8080, 10.0)
    assert service["spec"]["predictor"]["terminationGracePeriodSeconds"] > 10
    formats = [f["name"] for f in runtime["spec"]["supportedModelFormats"]]
    model = service["spec"]["predictor"]["model"]
    assert (
        model["runtime"] == runtime["metadata"]["name"] and model["modelFormat"]["name"] in formats
    )
    assert model["protocolVersion"] in runtime["spec"]["protocolVersions"]
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        port = container[probe]["httpGet"]["port"]
        assert port == container["ports"][0]["containerPort"] == 8080


def test_the_compose_file(monkeypatch):
    pytest.importorskip("uvicorn")
    (found,) = manifests("serve-compose.yaml")
    assert set(found) == {"services", "configs"}
    service = found["services"]["serve"]
    assert (ROOT / service["build"]["dockerfile"]).exists()
    assert checked_words(service["command"], monkeypatch)[:2] == ("0.0.0.0", 8080)
    assert service["ports"] == ["127.0.0.1:8080:8080"]
    (config,) = found["services"]["prometheus"]["configs"]
    scraped = pytest.importorskip("yaml").safe_load(found["configs"][config["source"]]["content"])
    assert scraped["scrape_configs"][0]["static_configs"] == [{"targets": ["serve:8080"]}]


# ---- the images ----


def instructions(name="Dockerfile"):
    """(word, rest) of each instruction of a Dockerfile, its lines joined."""
    text = (DEPLOY / name).read_text()
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    joined = re.sub(r"\\\n", "", "\n".join(lines))
    return [tuple(line.split(None, 1)) for line in joined.splitlines()]


def test_instructions_of_the_image():
    found = instructions()
    assert {word for word, _ in found} == {"FROM", "RUN", "COPY", "WORKDIR", "CMD"}
    stages = [rest.split(" AS ")[1] for word, rest in found if word == "FROM" and " AS " in rest]
    copied = [m[1] for _, rest in found if (m := re.match(r"--from=(\w+)", rest))]
    assert stages == copied == ["build"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "mpi" in project["optional-dependencies"]  # installed as plait[mpi]
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text().split()
    assert ".venv" in ignored and not [name for name in ignored if name in ("docs", "engine")]


def test_instructions_of_the_servers_image(monkeypatch):
    pytest.importorskip("uvicorn")
    found = instructions("serve.Dockerfile")
    last = dict(found)
    assert json.loads(last["ENTRYPOINT"]) == ["python", "-m", "plait", "serve"]
    assert checked_words(json.loads(last["CMD"]), monkeypatch)[:2] == ("0.0.0.0", 8080)
    assert (last["USER"], last["EXPOSE"]) == ("1000", "8080")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {"serve", "onnx", "images"} <= set(project["optional-dependencies"])
    asks = json.loads(last["HEALTHCHECK"].split("CMD ")[1])
    compile(asks[2], "HEALTHCHECK", "exec")
    ignored = [
        (DEPLOY / f"{n}.dockerignore").read_text() for n in ("Dockerfile", "serve.Dockerfile")
    ]
    assert ignored[0] == ignored[1]


@pytest.mark.parametrize("name", ["Dockerfile", "serve.Dockerfile"])
def test_scripts_of_the_image_run(tmp_path, name):
    """Every RUN, as a script below a folder that stands for /; apt-get, pip and python only note
    how they are called."""
    tools = tmp_path / "tools"
    tools.mkdir()
    log = tmp_path / "log"
    for called in ("apt-get", "pip", "python", "useradd"):
        program = tools / called
        program.write_text(f'#!/bin/sh\necho {called} "$@" >> {log}\n')
        program.chmod(0o755)
    root = tmp_path / "root"
    for folder in ("etc/ssh/ssh_config.d", "etc/ssh/sshd_config.d", "var/lib/apt/lists", "wheels"):
        (root / folder).mkdir(parents=True)
    (root / "wheels/plait-1-cp311-abi3-linux_x86_64.whl").touch()
    for word, script in instructions(name):
        if word == "RUN":
            here = re.sub(r"(?<=[\s(])/(?=etc|var|run|job|wheels|src|models)", f"{root}/", script)
            path = f"{tools}{os.pathsep}{os.environ['PATH']}"
            done = subprocess.run(
                ["sh", "-euc", here], env={"PATH": path}, capture_output=True, text=True
            )
            assert done.returncode == 0, done.stderr
    said = log.read_text()
    assert "pip wheel --no-cache-dir --no-deps --wheel-dir" in said
    extras = {"Dockerfile": "mpi", "serve.Dockerfile": "serve,onnx,images"}[name]
    assert f"plait-1-cp311-abi3-linux_x86_64.whl[{extras}]" in said
    assert not (root / "wheels").exists()
    if name == "serve.Dockerfile":
        assert (root / "models").is_dir() and "useradd" in said
        return
    assert "StrictHostKeyChecking no\n" in (root / "etc/ssh/ssh_config.d/plait.conf").read_text()
    assert "PasswordAuthentication no\n" in (root / "etc/ssh/sshd_config.d/plait.conf").read_text()
    assert (root / "run/sshd").is_dir()


# ---- Slurm ----


@pytest.mark.parametrize("fails, status, runs", [(0, 0, 1), (2, 0, 3), (9, 1, 4)])
def test_slurms_script_restarts_a_job(tmp_path, fails, status, runs):
    """On an srun that fails so often."""
    srun = tmp_path / "srun"
    log = shlex.quote(str(tmp_path / "log"))
    srun.write_text(
        f'#!/bin/sh\necho "$PLAIT_RESTART $OMP_NUM_THREADS $@" >> {log}\n'
        f'[ "$PLAIT_RESTART" -ge {fails} ]\n'
    )
    srun.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", DEPLOY / "slurm.sh", "train.py", "a b"],
        env={"PATH": path, "SLURM_CPUS_PER_TASK": "8"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == status
    lines = (tmp_path / "log").read_text().splitlines()
    assert [line.split()[:2] for line in lines] == [[str(i), "8"] for i in range(runs)]
    assert lines[0].endswith("--kill-on-bad-exit=1 python train.py a b")
