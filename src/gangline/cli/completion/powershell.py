"""Completion for PowerShell, which click does not bring: importing this makes `powershell` a shell like the others."""

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
    """What the script above asks for: a word and a tab before its help, one per line."""

    name = "powershell"
    source_template = SCRIPT_TEMPLATE

    def get_completion_args(self) -> tuple[list[str], str]:
        words = [_unquoted(word) for word in os.environ["COMP_WORDS"].split("\n")[1:]]
        incomplete = _unquoted(os.environ.get("COMP_CWORD", ""))
        # The word under the cursor is among them, unless it is still empty.
        if incomplete and words and words[-1] == incomplete:
            words.pop()
        return words, incomplete

    def format_completion(self, item: CompletionItem[str]) -> str:
        # Files and folders it completes by itself, when nothing else is offered.
        if item.type != "plain":
            return ""
        told = " ".join((item.help or "").split())
        return f"{item.value}\t{told}" if told else item.value


def _unquoted(word: str) -> str:
    """Without the quote it begins with, and the one it may end with."""
    if word[:1] in ("'", '"'):
        return word[1:].removesuffix(word[0])
    return word


add_completion_class(PowerShellComplete)
