"""Rules for label keys, label values and DNS names, in kube-apiserver's words.

Each function returns what is wrong, one sentence per mistake. An empty list means that the text is valid.
"""

import re

_NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")

_CHARACTERS = (
    "consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
)
_EMPTY_MESSAGE = "must be non-empty"
_NAME_RULE = (
    f"must {_CHARACTERS} (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{_NAME.pattern}')"
)
_VALUE_RULE = (
    f"a valid label must be an empty string or {_CHARACTERS} (e.g. 'MyValue',  or 'my_value',  or '12345', "
    f"regex used for validation is '{_VALUE.pattern}')"
)
_SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'example.com', "
    f"regex used for validation is '{_SUBDOMAIN.pattern}')"
)
MAX_DNS_LABEL_LENGTH = 63
"""The maximum length of a DNS label, and so of a Service's name."""
_MAX_NAME_LENGTH = 63
_MAX_SUBDOMAIN_LENGTH = 253


def qualified_name_problems(text: str) -> list[str]:
    """What is wrong with a label or annotation key, or a resource or taint name: `[prefix/]name`."""
    prefix, slash, name = text.rpartition("/")
    if "/" in prefix:
        return [
            f"a qualified name {_NAME_RULE} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        ]
    wrong = []
    if slash:
        wrong += [f"prefix part {what}" for what in (subdomain_problems(prefix) if prefix else [_EMPTY_MESSAGE])]
    if not name:
        wrong.append(f"name part {_EMPTY_MESSAGE}")
    elif len(name.encode()) > _MAX_NAME_LENGTH:
        wrong.append(f"name part {_too_long_message(_MAX_NAME_LENGTH)}")
    if not _NAME.fullmatch(name):
        wrong.append(f"name part {_NAME_RULE}")
    return wrong


def label_value_problems(text: str) -> list[str]:
    """What is wrong with the value of a label."""
    return _form_problems(text, _MAX_NAME_LENGTH, _VALUE, _VALUE_RULE)


def subdomain_problems(text: str) -> list[str]:
    """What is wrong with a DNS subdomain, which is the form of most object names."""
    return _form_problems(text, _MAX_SUBDOMAIN_LENGTH, _SUBDOMAIN, _SUBDOMAIN_RULE)


def _form_problems(text: str, most: int, form: re.Pattern[str], rule: str) -> list[str]:
    wrong = [_too_long_message(most)] if len(text.encode()) > most else []
    return wrong if form.fullmatch(text) else [*wrong, rule]


def _too_long_message(most: int) -> str:
    return f"must be no more than {most} characters"
