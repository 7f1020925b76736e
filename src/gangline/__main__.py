"""The `gangline` command."""

import sys


def main() -> int:
    """Run the command line. `--version` answers before anything heavy is imported."""
    if sys.argv[1:] == ["--version"]:
        from gangline import __version__

        sys.stdout.write(f"gangline {__version__}\n")
        return 0
    from gangline.cli.main import run

    return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
