"""Stands in for podman where there is none: the handful of verbs the node uses, with processes of this machine.

Keeps a folder per container under STANDIN: its command line and its process. Paths of volumes are rewritten in the
command, which is all of a mount that a process can have. An image is "here" once it was pulled, except `missing`.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

STATE_FOLDER = Path(os.environ["STANDIN"])


def run_container(words: list[str]) -> int:
    given: dict[str, list[str]] = {}
    rest = list(words)
    while rest[0].startswith("--"):
        given.setdefault(rest.pop(0), []).append(rest.pop(0))
    image, *arguments = rest
    folder = STATE_FOLDER / given["--name"][0]
    folder.mkdir()
    volumes = [text.split(":")[:2] for text in given["--volume"]]
    env = {"PATH": os.environ["PATH"], "IMAGE": image}
    for text in given["--env"]:
        name, equals, value = text.partition("=")
        env[name] = value if equals else os.environ[name]

    def mapped(text: str) -> str:
        for real, path in volumes:
            text = text.replace(path, real)
        return text

    command = [mapped(word) for word in (*given.get("--entrypoint", ["entrypoint-of-image"]), *arguments)]
    (folder / "run").write_text(json.dumps({"words": words, "env": env, "volumes": volumes}))
    process = subprocess.Popen(command, env=env, cwd=mapped(given.get("--workdir", ["/"])[0]), start_new_session=True)
    signal.signal(signal.SIGTERM, lambda *_: process.send_signal(signal.SIGTERM))
    (folder / "pid").write_text(str(process.pid))
    code = process.wait()
    return 128 - code if code < 0 else code


def exec_in_container(words: list[str]) -> int:
    while words[0].startswith("--"):
        words = words[1:]
    found = json.loads((STATE_FOLDER / words[0] / "run").read_text())
    return subprocess.run(words[1:], env=found["env"], check=False).returncode


def main(words: list[str]) -> int:
    match words:
        case ["version"]:
            broken = (STATE_FOLDER / "broken").exists()
            print("Cannot connect to the daemon" if broken else "version 1")
            return int(broken)
        case ["image", "inspect", image]:
            return 0 if (STATE_FOLDER / "images" / image).exists() else 1
        case ["pull", "--quiet", "missing"]:
            print("Error: unauthorized")
            return 125
        case ["pull", "--quiet", image]:
            (STATE_FOLDER / "images").mkdir(exist_ok=True)
            (STATE_FOLDER / "images" / image).touch()
            return 0
        case ["run", *rest]:
            return run_container(rest)
        case ["exec", *rest]:
            return exec_in_container(rest)
        case ["kill", name]:
            os.killpg(int((STATE_FOLDER / name / "pid").read_text()), signal.SIGKILL)
            return 0
        case ["inspect", "--format", "{{.State.OOMKilled}}", name]:
            print("true" if (STATE_FOLDER / name / "oom").exists() else "false")
            return 0
        case ["rm", "--force", name]:
            (STATE_FOLDER / name / "removed").touch()
            return 0
    raise SystemExit(f"stand-in: what is {words}?")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
