"""The `gangline` command."""

import os
import sys


def search_own_modules_first() -> None:
    """Search PYTHONPATH and the working directory last: a random.py there is the user's, not Python's."""
    theirs = {*filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)), "", "."}
    # `python -m gangline` puts the working directory first.
    theirs |= set(sys.path[:1]) if not sys.flags.safe_path and sys.argv[0].endswith("__main__.py") else set()
    sys.path[:] = [*(path for path in sys.path if path not in theirs), *(path for path in sys.path if path in theirs)]


def main() -> int:
    """Run the command line. `--version` answers before anything heavy is imported."""
    search_own_modules_first()
    if sys.stdout is None:
        # It was closed by who started us (`>&-`).
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123 - stays open until the end
    if sys.argv[1:] == ["--version"]:
        from gangline import __version__

        sys.stdout.write(f"gangline {__version__}\n")
        return 0
    if sys.argv[1:2] == ["get"]:
        # The one command that people type all day: it ends before there is garbage worth collecting.
        import gc

        gc.disable()
        from gangline.cli import get_fastpath

        code = get_fastpath.run(sys.argv[2:])
        if code is not None:
            get_fastpath.exit_at_once(code)
        gc.enable()
    from gangline.cli.main import run

    return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
