"""The program of a command, as the user's shell would start it, checked before anything runs."""

import os
import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from gangline.base.errors import InputError
from gangline.cli.manifests.from_command import is_python

_FRAMEWORK_NAMES = """
    accelerate cv2 datasets deepspeed flax horovod jax keras lightgbm lightning matplotlib mlflow mpi4py numpy optax
    paddle pandas ray requests scipy sklearn tensorflow torch torchvision tqdm transformers wandb xgboost yaml
"""
FRAMEWORK_MODULES = frozenset(_FRAMEWORK_NAMES.split())
"""Modules that training programs import, and that users name files after."""


LAUNCHERS = {"torchrun": "torch", "accelerate": "accelerate", "deepspeed": "deepspeed", "horovodrun": "horovod"}
USUAL_PROGRAMS = ("python", "python3", "bash", *LAUNCHERS)
_IMPORT = re.compile(rb"^[ \t]*(?:import|from)[ \t]+([A-Za-z_]\w*)", re.MULTILINE)
_SHELL_SYNTAX = re.compile(r"[;|&<>$`]|^(?:cd|source|export|\.)\s")
_VARIABLE = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
SHELL_COMMANDS = ("source", "export", "cd", ".", "alias", "ulimit")
NOTEBOOK_SUFFIX = ".ipynb"


def check_command_files(command: Sequence[str]) -> None:
    """Raise `InputError` if the program or its script cannot start: every process would fail with that."""
    from gangline.node.runtime.images import command_scripts

    if not command:
        return
    program = command[0]
    is_line = len(program.split()) > 1 and not Path(program).exists()
    if os.sep in program and not is_line:
        _check_program_file(program)
    elif _beside_gangline(program) is None and shutil.which(program) is None:
        raise InputError(_missing_program(command))
    if is_python(program):
        _check_python(command)
    for script in command_scripts(command):
        if not Path(script).exists():
            raise InputError(f"{script}: no such file; processes start in {Path.cwd()}{_similar_script(script)}")


def _check_program_file(program: str) -> None:
    if not os.access(program, os.X_OK) or Path(program).is_dir():
        problem = "is not executable" if Path(program).exists() else "no such file"
        hint = f"; for a script write its interpreter: python {program}" if program.endswith(".py") else ""
        raise InputError(f"{program}: {problem}; processes start in {Path.cwd()}{hint}")
    with Path(program).open("rb") as file:
        first = file.readline(500)
    if first.startswith(b"#!") and first.endswith(b"\r\n"):
        raise InputError(
            f"{program}: has line endings of Windows; convert it: sed -i 's/\\r$//' {shlex.quote(program)}"
        )
    if not first.startswith(b"#!") and program.endswith((".sh", ".py")):
        interpreter = "python" if program.endswith(".py") else "bash"
        raise InputError(f"{program}: does not begin with #!; write: -- {interpreter} {shlex.quote(program)}")


def _missing_program(command: Sequence[str]) -> str:
    """Why there is no such program, and what to write for what was probably meant."""
    program = command[0]
    if _VARIABLE.fullmatch(program):
        return f"{program}: is a variable and no program; write: -- env {shlex.join(command)}"
    if program in SHELL_COMMANDS:
        return f"{program}: is of the shell and no program; do it before the run, or write: -- bash -c '...'"
    if _SHELL_SYNTAX.search(program):
        return f"{program}: is no program; for a line of the shell write: -- bash -c {shlex.quote(program)}"
    if len(program.split()) > 1:
        return (
            f"{program}: is no program; leave the quotes out: -- {' '.join([program, *map(shlex.quote, command[1:])])}"
        )
    if Path(program).is_file():
        interpreter = "python" if program.endswith(".py") else "bash" if program.endswith(".sh") else ""
        return f"{program}: no such program on PATH; write: -- {f'{interpreter} {program}' if interpreter else f'./{program}'}"
    if package := LAUNCHERS.get(program):
        script = next((word for word in command if word.endswith(".py")), "train.py")
        return (
            f"{program}: is not installed (it is of the package {package}); --nproc starts the processes by itself, "
            f"write: -- python {shlex.quote(script)}"
        )
    from difflib import get_close_matches

    similar = get_close_matches(program, USUAL_PROGRAMS, 1, 0.7)
    return f"{program}: no such program on PATH" + (f"; did you mean {similar[0]}?" if similar else "")


def _check_python(command: Sequence[str]) -> None:
    """Raise `InputError` if the script or module of a Python command line does not exist, or is no program."""
    script = command[1] if len(command) > 1 else ""
    if script in ("", "-"):
        raise InputError(
            f"{shlex.join(command)}: reads its program from standard input, which processes of a run do not have; "
            "write the program into a file: -- python train.py"
        )
    if script == "-m" and len(command) > 2 and command[2].endswith(".py"):
        module = command[2].removesuffix(".py").replace(os.sep, ".")
        raise InputError(f"-m {command[2]}: a module has no .py; write: -- {shlex.join(('python', '-m', module))}")
    if script.endswith(NOTEBOOK_SUFFIX):
        raise InputError(f"{script}: {notebook_hint(script)}")
    path = Path(script)
    if script and path.is_dir() and not (path / "__main__.py").exists():
        raise InputError(f"{script}: is a folder without __main__.py; name the script in it")
    if not script.endswith(".py"):
        return
    if not path.exists():
        raise InputError(f"{script}: no such file; processes start in {Path.cwd()}{_similar_script(script)}")
    if path.is_file() and path.stem in _known_imports(path):
        raise InputError(
            f"{script}: imports {path.stem}, which is the script itself by its name; rename it, such as my_{path.name}"
        )


def notebook_hint(file: str) -> str:
    """What to do with a notebook where a program is expected."""
    script = shlex.quote(f"{file.removesuffix(NOTEBOOK_SUFFIX)}.py")
    return f"is a notebook; convert it: jupyter nbconvert --to script {shlex.quote(file)}, then run {script}"


def hidden_modules(command: Sequence[str]) -> list[str]:
    """Warnings about files beside the script that hide modules of Python or of a framework that the script imports."""
    script = Path(command[1]) if len(command) > 1 and is_python(command[0]) else Path()
    if script.suffix != ".py" or not script.is_file():
        return []
    return [
        f"{script.with_name(f'{name}.py')}: hides the module {name}, which {script} imports; rename it"
        for name in sorted(_known_imports(script))
        if script.with_name(f"{name}.py").is_file()
    ]


def _known_imports(script: Path) -> frozenset[str]:
    """The modules of Python and of frameworks that a script imports."""
    names = {name.decode() for name in _IMPORT.findall(script.read_bytes())}
    return (sys.stdlib_module_names | FRAMEWORK_MODULES) & names


def _similar_script(script: str) -> str:
    from difflib import get_close_matches

    if "\\" in script and Path(script.replace("\\", "/")).exists():
        return f"; write {script.replace(chr(92), '/')}"
    folder = Path(script).parent
    names = [entry.name for entry in folder.glob("*.py")] if folder.is_dir() else []
    similar = get_close_matches(Path(script).name, names, 1, 0.7)
    return f"; did you mean {folder / similar[0]}?" if similar else ""


def _beside_gangline(program: str) -> Path | None:
    path = Path(sys.executable).parent / program
    return path if path.is_file() and os.access(path, os.X_OK) else None
