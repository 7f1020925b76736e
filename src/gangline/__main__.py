"""The `gangline` command."""

import sys


def main() -> int:
    """Run the command line. `--version` answers before anything heavy is imported."""
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
