"""Completion for PowerShell, which click lacks. Importing this module registers `powershell` with click."""

import os

from click.shell_completion import CompletionItem, ShellComplete, add_completion_class

SCRIPT_TEMPLATE = """\
Register-ArgumentCompleter -Native -CommandName '%(prog_name)s' -ScriptBlock {
    param($wordToComplete, $commandAst, $cursorPosition)
    $words = $commandAst.CommandElements |
        Where-Object { $_.Extent.StartOffset -lt $cursorPosition } |
        ForEach-Object { $_.Extent.Text }
    $env:COMP_WORDS = @($words) -join "`n"
    $env:COMP_CWORD = $wordToComplete
    $env:%(complete_var)s = 'powershell_complete'
    try {
        & '%(prog_name)s' | ForEach-Object {
            $value, $help = $_ -split "`t", 2
            if ($value) {
                if (-not $help) { $help = $value }
                [System.Management.Automation.CompletionResult]::new($value, $value, 'ParameterValue', $help)
            }
        }
    } finally {
        Remove-Item Env:COMP_WORDS, Env:COMP_CWORD, Env:%(complete_var)s -ErrorAction SilentlyContinue
    }
}
"""


class PowerShellComplete(ShellComplete):
    """Prints what the script above reads: one candidate per line, with a tab before its help."""

    name = "powershell"
    source_template = SCRIPT_TEMPLATE

    def get_completion_args(self) -> tuple[list[str], str]:
        words = [_unquoted(word) for word in os.environ["COMP_WORDS"].split("\n")[1:]]
        incomplete = _unquoted(os.environ.get("COMP_CWORD", ""))
        # The words include the one under the cursor, unless that is still empty.
        if incomplete and words and words[-1] == incomplete:
            words.pop()
        return words, incomplete

    def format_completion(self, item: CompletionItem[str]) -> str:
        # PowerShell completes files and folders itself when there is no candidate.
        if item.type != "plain":
            return ""
        help_text = " ".join((item.help or "").split())
        return f"{item.value}\t{help_text}" if help_text else item.value


def _unquoted(word: str) -> str:
    """A word without its opening quote and, if there is one, its closing quote."""
    if word[:1] in ("'", '"'):
        return word[1:].removesuffix(word[0])
    return word


add_completion_class(PowerShellComplete)
