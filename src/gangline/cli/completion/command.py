"""`gangline completion`: the completion script of a shell."""

import click
from click.shell_completion import get_completion_class

from gangline.base.errors import InputError
from gangline.cli.flags.commands import cli_command

SHELLS = ("bash", "zsh", "fish", "powershell")


@cli_command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    r"""Print a shell script that enables tab completion.

    \b
      source <(gangline completion bash)                                   in this shell
      gangline completion bash > ~/.local/share/bash-completion/completions/gangline
      gangline completion zsh > "${fpath[1]}/_gangline"
      gangline completion fish > ~/.config/fish/completions/gangline.fish
      gangline completion powershell | Out-String | Invoke-Expression      a line for $PROFILE

    Commands, options, namespaces, contexts and the names of jobs are completed.

    Exit codes: 0 printed; 1 an unknown shell.
    """
    # The import registers PowerShell; click has the other three itself.
    import gangline.cli.completion.powershell  # noqa: F401

    completion_class = get_completion_class(shell)
    if completion_class is None:
        raise InputError(f"{shell}: is not known; write one of {', '.join(SHELLS)}")
    root = context.find_root()
    click.echo(completion_class(root.command, {}, "gangline", "_GANGLINE_COMPLETE").source())
