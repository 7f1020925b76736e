"""`gangline completion`: what makes a shell complete our words."""

import click
from click.shell_completion import get_completion_class

from gangline.base.errors import InputError
from gangline.cli.flags.commands import cli_command

SHELLS = ("bash", "zsh", "fish", "powershell")


@cli_command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    r"""Print a script for a shell: commands, options, namespaces, contexts and job names are then completed.

    \b
      source <(gangline completion bash)                                   now
      gangline completion bash > ~/.local/share/bash-completion/completions/gangline
      gangline completion zsh > "${fpath[1]}/_gangline"
      gangline completion fish > ~/.config/fish/completions/gangline.fish
      gangline completion powershell | Out-String | Invoke-Expression      a line for $PROFILE

    Exit codes: 0; 1 a shell that is not known.
    """
    # Imported for what it does: click knows the other three by itself.
    import gangline.cli.completion.powershell  # noqa: F401

    found = get_completion_class(shell)
    if found is None:
        raise InputError(f"{shell}: is not known; write one of {', '.join(SHELLS)}")
    root = context.find_root()
    click.echo(found(root.command, {}, "gangline", "_GANGLINE_COMPLETE").source())
