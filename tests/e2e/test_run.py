"""`gangline run` and `gangline demo` as a person types them."""

import json
import os
import re
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path

import pytest

from gangline.base.invocation import shown_path
from support.waiting import wait_until_blocking

ROOT = Path(__file__).parents[2]

JOB = """\
apiVersion: kubeflow.org/v1
kind: TFJob
metadata:
  name: small
spec:
  tfReplicaSpecs:
    Worker:
      replicas: {replicas}
      template:
        spec:
          containers:
            - name: tensorflow
              image: none
              command: [{command}]
"""


def gangline(
    *arguments: str | Path, cwd: Path = ROOT, env: dict[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "gangline", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=cwd, timeout=150, env={**os.environ, **(env or {})}
    )


def job(folder: Path, command: str = '"true"', replicas: str = "2") -> Path:
    file = folder / "job.yaml"
    file.write_text(JOB.format(command=command, replicas=replicas))
    return file


def trained(output: str) -> None:
    for worker in range(3):
        losses = [float(found) for found in re.findall(rf"worker-{worker}\| step=\d+ of=\d+ loss=([\d.]+)", output)]
        assert len(losses) >= 4
        assert losses[0] > 100 * losses[-1]
    assert "tfjob/linear  Succeeded" in output


END = (
    "tfjob/linear  Succeeded",
    "✖ worker-1  failed first: exit 137",
    " ┤",
    "logarithmic",
    "loss.svg",
    "next: gangline get",
)


def told(*parts: str, by: str) -> None:
    """In this order."""
    at = -1
    for part in parts:
        at = by.find(part, at + 1)
        assert at >= 0, f"{part} is missing, or out of order:\n{by}"


def test_demo_trains_through_every_layer_loses_a_worker_and_heals(tmp_path: Path) -> None:
    done = gangline("demo", "--pace", "0.005", "--runs", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    trained(done.stdout)
    assert '"progress"' not in done.stdout
    assert "  worker-0   step 200/400  50 %  loss" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
    # What pods do and what programs print come by two ways, and either may be told first.
    told("demo: SIGKILL to worker-1", "worker-1   failed", "worker-1   running", *END, by=done.stdout)
    told(
        "demo: SIGKILL to worker-1",
        "ps-0| lost worker 1, waiting for it",
        "worker-1| back at step",
        "worker-1| trained",
        *END,
        by=done.stdout,
    )
    kept = {file.name for file in (tmp_path / "linear").iterdir()}
    assert kept == {"ps-0.log", "worker-0.log", "worker-1.log", "worker-2.log", "job.json", "loss.svg", "timeline.svg"}
    job = json.loads((tmp_path / "linear" / "job.json").read_text())
    assert job["status"]["restarts"] == 1


def test_a_process_may_end_after_rank_0(tmp_path: Path) -> None:
    """As under torchrun: the master decides about the job, and its peers still write their results."""
    script = """
        if [ $RANK = 0 ]; then echo $$ > first; exit 0; fi
        until [ -s first ]; do sleep 0.1; done
        while kill -0 $(cat first) 2> /dev/null; do sleep 0.1; done
        sleep 1; echo the result of rank $RANK
    """
    done = gangline("run", "--nproc", "2", "--", "sh", "-c", script, cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    assert "worker-0| the result of rank 1" in done.stdout


@pytest.mark.parametrize("nproc", ["1", "4"])
def test_the_numpy_script_trains_without_a_file(nproc: str) -> None:
    done = gangline("run", "--nproc", nproc, "--", "python", "examples/train_numpy.py")
    assert done.returncode == 0, done.stdout + done.stderr
    # The processes have different data, and the same weights at the end.
    errors = re.findall(r"^\S+\| trained: largest error of a weight ([\d.]+)$", done.stdout, re.MULTILINE)
    assert len(errors) == int(nproc)
    assert len(set(errors)) == 1
    assert float(errors[0]) < 0.05
    assert "  master-0   step 200/200  100 %  loss" in done.stdout


def test_each_process_has_a_gpu_for_itself(tmp_path: Path) -> None:
    program = "import os; print('gpu', os.environ['CUDA_VISIBLE_DEVICES'], 'of', os.environ['LOCAL_RANK'])"
    gpus = {"GANGLINE_GPUS": "nvidia=2"}
    for options in (("--nproc", "gpu"), ("--nproc", "2"), ("--nproc", "2", "--limit", "gpu=1")):
        done = gangline("run", *options, "--", "python", "-c", program, env=gpus)
        assert done.returncode == 0, done.stdout + done.stderr
        assert sorted(re.findall(r"\| (gpu \d of \d)", done.stdout)) == ["gpu 0 of 0", "gpu 1 of 0"]
    done = gangline("run", "--nproc", "gpu", "--", "true", env={"GANGLINE_GPUS": "none"})
    assert (done.returncode, done.stderr.count("error: --nproc gpu: no GPU was detected")) == (1, 1)


def test_a_team_starts_again_as_a_whole_as_often_as_it_may(tmp_path: Path) -> None:
    program = """\
        import os, pathlib, sys, time
        rank, first = os.environ["RANK"], not pathlib.Path("failed").exists()
        print("begin", rank, "first" if first else "second", flush=True)
        if rank == "1" and first:
            pathlib.Path("failed").touch()
            sys.exit(3)
        while rank == "0" and first:
            time.sleep(0.1)
    """
    (tmp_path / "train.py").write_text(textwrap.dedent(program))
    words = ("run", "--nproc", "2", "--max-restarts", "1", "--timeout", "60", "--", "python", "train.py")
    done = gangline(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    # The one that waited was started again, too.
    assert {"begin 0 second", "begin 1 second"} <= set(re.findall(r"\| (begin .*)", done.stdout))


def test_a_job_that_fails_exits_100(tmp_path: Path) -> None:
    done = gangline("run", job(tmp_path, 'python, -c, "import sys; print(42); sys.exit(3)"'))
    assert done.returncode == 100, done.stderr
    assert "| 42" in done.stdout
    assert "has failed because" in done.stdout
    assert re.search(r"first to fail: worker-\d with exit code 3 .*\n  worker-\d\| 42\n", done.stdout)


def test_a_process_that_fails_after_rank_0_has_ended_fails_the_run(tmp_path: Path) -> None:
    script = """\
        import os, pathlib, sys, time
        if os.environ["RANK"] == "0":
            print("rank 0 is done")
            pathlib.Path("pid").write_text(str(os.getpid()))
            sys.exit()
        while not (pid := pathlib.Path("pid").read_text() if os.path.exists("pid") else ""):
            time.sleep(0.01)
        while os.path.exists(f"/proc/{pid}"):
            time.sleep(0.01)
        sys.exit("rank 1 broke")
        """
    (tmp_path / "train.py").write_text(textwrap.dedent(script))
    result = gangline("run", "--nproc", "2", "--", sys.executable, "train.py", cwd=tmp_path)
    assert result.returncode == 100, result.stdout
    assert "first to fail: worker-0 (rank 1) with exit code 1" in result.stdout
    assert "worker-0| rank 1 broke" in result.stdout


def test_a_script_that_calls_python_gets_the_one_of_the_shell(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "the python of the shell, $*"\n')
    python.chmod(0o755)
    script = tmp_path / "launch.sh"
    script.write_text("#!/bin/bash\nset -e\npython train.py --rank $RANK\n")
    script.chmod(0o755)
    env = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "VIRTUAL_ENV": str(tmp_path)}
    result = gangline("run", "--nproc", "2", "--", "./launch.sh", cwd=tmp_path, env=env)
    assert result.returncode == 0, result.stdout
    assert "worker-0| the python of the shell, train.py --rank 1" in result.stdout


def test_a_last_line_without_an_end_is_shown(tmp_path: Path) -> None:
    result = gangline("run", "--nproc", "2", "--", "sh", "-c", "printf 'the last words'; exit 3", cwd=tmp_path)
    assert result.returncode == 100
    assert {"master-0| the last words", "worker-0| the last words"} & set(result.stdout.splitlines())
    assert re.search(r"^first to fail: .*\n  (master|worker)-0\| the last words$", result.stdout, re.MULTILINE)


def test_a_command_without_a_number_of_processes_is_one_process() -> None:
    done = gangline("run", "--", "python", "-c", "import os; print('size', os.environ.get('WORLD_SIZE'))")
    assert done.returncode == 0, done.stderr
    assert re.search(r"^master-0\| size (1|None)$", done.stdout, re.MULTILINE), done.stdout


def test_the_path_of_a_program_is_a_command_and_not_a_file(tmp_path: Path) -> None:
    script = tmp_path / "launch.sh"
    script.write_text("#!/bin/sh\necho launched\n")
    script.chmod(0o755)
    for program in ("./launch.sh", str(script)):
        done = gangline("run", "--", program, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "master-0| launched" in done.stdout
    # On some file systems every file is executable.
    job(tmp_path).chmod(0o755)
    assert gangline("run", "./job.yaml", cwd=tmp_path).returncode == 0


def test_a_command_that_does_not_exist_is_an_error_before_the_job_starts(tmp_path: Path) -> None:
    done = gangline("run", job(tmp_path, "no-such-program"))
    assert done.returncode == 1, done.stderr
    (line,) = done.stderr.splitlines()
    assert 'exec: "no-such-program": executable file not found in $PATH' in line
    assert "; install no-such-program; or run the image with podman or docker (" in line


RESTARTED = """\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {{name: small}}
spec:
  {policy}
  pytorchReplicaSpecs:
    Worker:
      replicas: 2
      restartPolicy: {restart}
      template: {{spec: {{containers: [{{name: pytorch, image: none, command: [python, program.py]}}]}}}}
"""


@pytest.mark.parametrize("restart", ["OnFailure", "Always"])
def test_a_package_that_is_missing_everywhere_ends_the_job_at_once(tmp_path: Path, restart: str) -> None:
    (tmp_path / "program.py").write_text("import no_such_package.part\n")
    (tmp_path / "job.yaml").write_text(RESTARTED.format(policy="", restart=restart))
    home = {"GANGLINE_HOME": str(tmp_path / "home")}
    done = gangline("run", tmp_path / "job.yaml", "--timeout", "60", env=home)
    assert done.returncode == 100, done.stdout + done.stderr
    python = shown_path(Path(sys.executable).parent / "python")
    message = f"no_such_package is not installed in this Python ({python}); install it: "
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("Failed in ")]
    assert re.fullmatch(rf"Failed in [\d.]+ s: {re.escape(message)}.* no_such_package", line)
    # The record has the same reason.
    shown = gangline("describe", "small", env=home)
    assert message in shown.stdout


def test_a_job_with_a_backoff_limit_is_tried_as_often_as_it_says(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("import no_such_package\n")
    (tmp_path / "job.yaml").write_text(RESTARTED.format(policy="runPolicy: {backoffLimit: 2}", restart="OnFailure"))
    done = gangline("run", tmp_path / "job.yaml", "--timeout", "60", "-o", "json")
    assert done.returncode == 100, done.stderr
    assert json.loads(done.stdout)["status"]["restarts"] >= 2
    assert "no_such_package is not installed in this Python" in done.stderr


def test_a_replica_that_lacks_a_package_is_tried_again_if_its_peers_run(tmp_path: Path) -> None:
    program = """\
        import os, pathlib, time
        tried = pathlib.Path("tried")
        if os.environ["POD_NAME"] == "small-worker-1" and not tried.exists():
            tried.touch()
            import no_such_package
        while not tried.exists():
            time.sleep(0.05)
    """
    (tmp_path / "program.py").write_text(textwrap.dedent(program))
    job = RESTARTED.format(policy="", restart="OnFailure").replace(
        "image: none", "image: none, env: [{name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]"
    )
    (tmp_path / "job.yaml").write_text(job)
    done = gangline("run", tmp_path / "job.yaml", "--timeout", "60")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "No module named 'no_such_package'" in done.stdout


def test_timeout_exits_101_and_leaves_no_process(tmp_path: Path) -> None:
    home = {"GANGLINE_HOME": str(tmp_path / "home"), "HOME": str(tmp_path), "KUBECONFIG": ""}
    done = gangline("run", job(tmp_path, "sleep, '9999'"), "--timeout", "2", "--keep", env=home, cwd=tmp_path)
    assert done.returncode == 101
    assert "not finished after 2 s; everything was stopped" in done.stderr
    assert "tfjob/small  Stopped" in done.stdout
    assert "logs: runs/small/" in done.stdout
    # What is printed next works, and the record says how it was.
    commands = [line.removeprefix("next:").strip() for line in done.stdout.splitlines() if line.endswith(" small")]
    assert [command.split()[-2:] for command in commands] == [["why", "small"], ["logs", "small"]]
    shown = gangline("why", "small", env=home)
    assert "TFJob default/small was Running, all 2 replicas up" in shown.stdout
    assert "its --timeout was over" in shown.stdout


def test_wrong_input_is_reported_before_anything_starts(tmp_path: Path) -> None:
    file = job(tmp_path)
    claim = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: Bad_Name}\n---\n"
    (tmp_path / "claim.yaml").write_text(claim + file.read_text())
    for arguments, message in (
        ((file, "--set", "spec.tfReplicaSpecs.Worker.replicas=0"), "Worker.replicas: is 0; write 1 or more"),
        ((file, "--set", "metadata.name=Bad_Name"), "metadata.name: must be a DNS-1035 label"),
        ((tmp_path / "claim.yaml",), "metadata.name: Invalid value"),
        (
            ("--nproc", "2", "--limit", "nvidia.com/gpu=999", "--", "true"),
            "--limit nvidia.com/gpu=999: this machine has",
        ),
        (("--nproc", "2", "--set", "spec.wrong=1", "--", "true"), "error: spec.wrong: unknown field"),
        (("--nproc", "2", "--", "no-such-program"), "no-such-program: no such program on PATH"),
    ):
        done = gangline("run", *arguments)
        assert done.returncode == 1, done.stderr
        assert message in done.stderr
        assert done.stderr.count("error:") == 1
        assert "ready" not in done.stderr


def test_interrupt_ends_every_process(tmp_path: Path) -> None:
    script = tmp_path / "forever.py"
    script.write_text("import os, time\nprint('pid', os.getpid(), flush=True)\ntime.sleep(9999)\n")
    file = job(tmp_path, "python, forever.py")
    process = subprocess.Popen(
        [sys.executable, "-m", "gangline", "run", str(file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    pids: list[int] = []
    assert process.stdout is not None
    for line in process.stdout:
        if found := re.search(r"\| pid (\d+)", line):
            pids.append(int(found[1]))
        if len(pids) == 2:
            break
    process.send_signal(2)
    rest, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    assert re.search(r"stopping worker-0 and worker-1 .*\n(?:.*\n)*stopped; no process is left\n", rest)
    for pid in pids:
        assert not Path(f"/proc/{pid}").exists()


def test_a_run_that_is_killed_leaves_no_process_and_no_folder(tmp_path: Path) -> None:
    script = tmp_path / "forever.py"
    script.write_text("import os, time\nprint('pid', os.getpid(), flush=True)\ntime.sleep(9999)\n")
    folder = tmp_path / "tmp"
    folder.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "gangline", "run", str(job(tmp_path, "python, forever.py"))],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "TMPDIR": str(folder)},
    )
    assert process.stdout is not None
    pids: set[int] = set()
    for line in process.stdout:
        if found := re.search(r"\| pid (\d+)", line):
            pids.add(int(found[1]))
        if len(pids) == 2:
            break
    process.kill()
    process.communicate()
    wait_until_blocking(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))
    wait_until_blocking(lambda: not list(folder.iterdir()))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            JOB.format(command="x", replicas="three"),
            'job.yaml:8: spec.tfReplicaSpecs.Worker.replicas: expected int, got "three"',
        ),
        ("kind: TFJob\n", "job.yaml:1: apiVersion: required field is missing"),
        ("a: [", "job.yaml:"),
        ("", "holds no object"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_1(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "job.yaml").write_text(text)
    done = gangline("run", "job.yaml", cwd=tmp_path)
    assert done.returncode == 1
    told, *more = done.stderr.splitlines()
    assert told.startswith("error: ")
    assert message in told
    assert all(line.startswith("       write:   ") for line in more)


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (
            "              image: none\n",
            "",
            [
                (
                    "error: job.yaml:12: spec.tfReplicaSpecs.Worker.template.spec.containers[0].image: "
                    "Required value: write the image to run"
                )
            ],
        ),
        (
            "name: tensorflow",
            "name: main",
            [
                (
                    "error: job.yaml:12: spec.tfReplicaSpecs.Worker.template.spec.containers[0].name: "
                    'no container is named "tensorflow": give the one that trains this name'
                ),
                "       write:   name: tensorflow",
            ],
        ),
        (
            "    Worker:",
            "    Wroker:",
            [
                (
                    "error: job.yaml:7: spec.tfReplicaSpecs.Wroker: is no replica type of a TFJob; "
                    "write one of Chief, Evaluator, Master, PS, Worker"
                )
            ],
        ),
        (
            "      replicas: 2",
            "      replicas: 2\n      restartPolice: Never",
            [
                "error: job.yaml:9: spec.tfReplicaSpecs.Worker.restartPolice: unknown field",
                "       write:   restartPolicy: Never",
            ],
        ),
    ],
    ids=["image", "container", "type", "field"],
)
def test_what_the_plane_refuses_is_told_with_its_line(tmp_path: Path, before: str, after: str, told: list[str]) -> None:
    text = JOB.format(command='"true"', replicas="2")
    assert before in text
    (tmp_path / "job.yaml").write_text(text.replace(before, after))
    done = gangline("run", "job.yaml", cwd=tmp_path)
    assert done.returncode == 1
    # Before anything starts.
    assert done.stderr.splitlines() == told
    assert done.stdout == ""


def test_a_file_where_a_command_should_be_is_refused(tmp_path: Path) -> None:
    for words in (("--nproc", "2", job(tmp_path)), ("-f", job(tmp_path), "--nproc", "2", "--", "true")):
        done = gangline("run", *words)
        assert done.returncode == 1
        assert "error: --nproc: is for a COMMAND, and " in done.stderr


def test_the_job_as_it_ended_goes_to_stdout_and_all_else_to_stderr(tmp_path: Path) -> None:
    done = gangline("run", job(tmp_path, "echo, hello"), "-o", "json", "--set", "metadata.name=other")
    assert done.returncode == 0, done.stderr
    ended = json.loads(done.stdout)
    assert (ended["kind"], ended["metadata"]["name"]) == ("TFJob", "other")
    assert [each["type"] for each in ended["status"]["conditions"] if each["status"] == "True"][-1] == "Succeeded"
    assert "worker-0| hello" in done.stderr


def test_a_setting_of_the_wrong_type_is_one_line_and_exit_code_1(tmp_path: Path) -> None:
    job(tmp_path)
    setting = "spec.tfReplicaSpecs.Worker.replicas=many"
    done = gangline("run", "job.yaml", "--set", setting, cwd=tmp_path)
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert 'spec.tfReplicaSpecs.Worker.replicas: expected int, got "many"' in done.stderr


@pytest.mark.parametrize("kind", ["PyTorchJob", "XGBoostJob", "JAXJob", "PaddleJob"])
def test_a_script_needs_no_file(kind: str) -> None:
    done = gangline("run", "--nproc", "3", "--kind", kind, "--", "python", "allreduce.py", cwd=ROOT / "examples")
    assert done.returncode == 0, done.stdout + done.stderr
    assert {int(rank) for rank in re.findall(r"trained: rank (\d+) of", done.stdout)} == {0, 1, 2}
    assert f"{kind.lower()}/allreduce  Succeeded" in done.stdout


def test_a_script_that_fails_exits_100(tmp_path: Path) -> None:
    done = gangline("run", "--nproc", "1", "--", "python", "-c", "raise SystemExit(3)", cwd=tmp_path)
    assert done.returncode == 100, done.stdout + done.stderr
    assert "first to fail: master-0 with exit code 3" in done.stdout


def test_several_files_run_at_once_each_in_its_own_folder(tmp_path: Path) -> None:
    for name, code in (("good", 0), ("bad", 3)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "train.py").write_text(f"import os; print('in', os.path.basename(os.getcwd())); os._exit({code})")
        file = job(folder, "python, -u, train.py", replicas="1")
        file.write_text(file.read_text().replace("name: small", f"name: {name}"))
    done = gangline("run", "good/job.yaml", "bad/job.yaml", "-o", "json", cwd=tmp_path)
    # The worst verdict.
    assert done.returncode == 100, done.stderr
    assert {"good/worker-0| in good", "bad/worker-0| in bad"} <= set(done.stderr.splitlines())
    assert "tfjob/good\nSucceeded in" in done.stderr
    assert "tfjob/bad\nFailed in" in done.stderr
    listed = json.loads(done.stdout)
    assert listed["kind"] == "List"
    assert [item["metadata"]["name"] for item in listed["items"]] == ["good", "bad"]


def test_several_jobs_in_one_file_run_at_once(tmp_path: Path) -> None:
    # One name begins with the other: their pods are told apart.
    texts = [JOB.format(command=f"echo, {name}", replicas="1").replace("small", name) for name in ("a", "a-b")]
    (tmp_path / "job.yaml").write_text("---\n".join(texts))
    done = gangline("run", "job.yaml", "--keep", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for name in ("a", "a-b"):
        assert f"{name}/worker-0| {name}\n" in done.stdout
        assert (tmp_path / "runs" / name / "worker-0.log").read_text() == f"{name}\n"


def test_what_a_file_holds_beside_its_job_is_made_first(tmp_path: Path) -> None:
    settings = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {LR: '0.1'}\n"
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}
    data = f"apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {{name: data}}\nspec: {json.dumps(claim)}\n"
    more = "              envFrom: [{configMapRef: {name: settings}}]\n"
    more += "              volumeMounts: [{name: data, mountPath: /data}]\n"
    more += "          volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]\n"
    body = JOB.format(command="sh, -c, 'echo rate $LR'", replicas="1") + more
    file = tmp_path / "job.yaml"
    file.write_text(f"{settings}---\n{data}---\n{body}")
    done = gangline("run", file)
    assert (done.returncode, "worker-0| rate 0.1" in done.stdout) == (0, True), done
    file.write_text(f"{settings.replace('name: settings', 'name: No_Name')}---\n{data}---\n{body}")
    bad = gangline("run", file)
    assert bad.returncode == 1
    assert f'error: {file}:3: metadata.name: Invalid value: "No_Name"' in bad.stderr


def test_two_jobs_of_one_name_are_refused(tmp_path: Path) -> None:
    job(tmp_path)
    done = gangline("run", "job.yaml", "job.yaml", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "error: tfjob/small: another job of this run is called small; rename one of them\n"


def test_no_file_is_refused_with_what_to_write() -> None:
    done = gangline("run")
    assert done.returncode == 1
    assert done.stderr == ("error: expected a FILE; or for a script: gangline run --nproc 4 -- python train.py\n")


def test_what_is_kept_is_where_it_was_asked_to_be(tmp_path: Path) -> None:
    done = gangline("run", job(tmp_path, "echo, hello"), "--keep", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "runs" / "small" / "worker-0.log").read_text() == "hello\n"
    assert done.stdout.endswith("logs: runs/small/\n")


def test_a_missing_file_is_one_line() -> None:
    done = gangline("run", "nowhere.yaml")
    assert (done.returncode, done.stderr) == (1, "error: nowhere.yaml: No such file or directory\n")


def test_the_wheel_carries_the_demo_and_the_plugin_of_kubectl(tmp_path: Path) -> None:
    build = "import sys; from pdm.backend import build_wheel; print(build_wheel(sys.argv[1]))"
    made = subprocess.run(
        [sys.executable, "-c", build, str(tmp_path)], capture_output=True, text=True, cwd=ROOT, check=True
    )
    wheel = tmp_path / made.stdout.strip().splitlines()[-1]
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    (scripts,) = (tmp_path / "site").glob("*.dist-info/entry_points.txt")
    assert "kubectl-gangline = gangline.__main__:main" in scripts.read_text().splitlines()
    probe = textwrap.dedent("""
        import gangline, pathlib, sys
        from gangline.__main__ import main
        assert pathlib.Path(gangline.__file__).is_relative_to(sys.argv.pop()), gangline.__file__
        sys.exit(main())
    """)
    done = subprocess.run(
        [sys.executable, "-c", probe, "demo", "--pace", "0.005", str(tmp_path / "site")],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "site")},
        timeout=150,
    )
    assert done.returncode == 0, done.stderr
    trained(done.stdout)


@pytest.mark.parametrize(
    ("options", "scheduler"),
    [
        ((), "default-scheduler"),
        (("--gang",), "gangline"),
        (("--set", "spec.runPolicy.schedulingPolicy={}"), "gangline"),
    ],
)
def test_a_run_starts_gangs_if_asked_as_a_plane_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], scheduler: str
) -> None:
    for name in [name for name in os.environ if name.startswith("KUBE")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GANGLINE_HOME", str(tmp_path / "home"))
    file = job(tmp_path)
    done = gangline("run", file.name, *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    pods = gangline("get", "pods", "-o", "jsonpath={.items[*].spec.schedulerName}", cwd=tmp_path)
    assert pods.stdout.split() == [scheduler] * 2


def test_a_gang_in_a_cluster_is_the_jobs_own_business(tmp_path: Path) -> None:
    done = gangline("run", "--gang", "--context", "prod", job(tmp_path).name, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("error: --gang: ")
    assert "--set spec.runPolicy.schedulingPolicy={}" in done.stderr


def test_a_script_that_is_not_there_is_told_before_anything_starts(tmp_path: Path) -> None:
    done = gangline("run", "--nproc", "2", "--", "python", "train.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"error: train.py: no such file; processes start in {tmp_path}\n"


def test_a_timeout_is_a_duration(tmp_path: Path) -> None:
    done = gangline("run", job(tmp_path, 'sleep, "600"').name, "--timeout", "0.02m", cwd=tmp_path)
    assert done.returncode == 101
    assert "not finished after 1.2 s" in done.stderr
    done = gangline("run", "job.yaml", "--timeout", "soon", cwd=tmp_path)
    assert done.returncode == 1
    assert "write 30s, 5m or 1h30m" in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no device that is always full")
@pytest.mark.parametrize("words", [("crds",), ("get",), ("plan", "job.yaml"), ("run", "job.yaml")])
def test_output_that_cannot_be_written_is_one_line_and_exit_code_1(tmp_path: Path, words: tuple[str, ...]) -> None:
    job(tmp_path)
    env = {**os.environ, "HOME": str(tmp_path), "GANGLINE_HOME": str(tmp_path / "home")}
    # As in a user's shell: the interpreter writes what it has buffered at exit, and must not fail again then.
    env.pop("PYTHONUNBUFFERED", None)
    command = [sys.executable, "-m", "gangline"]
    if words == ("get",):  # the only one that tells of an earlier run
        subprocess.run([*command, "run", "job.yaml"], cwd=tmp_path, env=env, capture_output=True, check=True)
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*command, *words],
            cwd=tmp_path,
            env=env,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "error: No space left on device"
    assert "Traceback" not in done.stderr
