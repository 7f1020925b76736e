"""What Go's decoder reports about text that is not JSON. Our decoder, which is faster, has other words for it."""

from gangline.schema.go_text import quoted_text

_SPACE = b" \t\r\n"
_DIGITS = b"0123456789"
_HEX_DIGITS = b"0123456789abcdefABCDEF"
_ESCAPES = b'bfnrt\\/"'
_LITERALS = {b"t": b"true", b"f": b"false", b"n": b"null"}
END_TEXT = "unexpected end of JSON input"


class _SyntaxError(Exception):
    pass


def syntax_error(raw: bytes) -> str:
    """The first syntax error of a text, in Go's words; empty if it is valid JSON."""
    scanner = _Scanner(raw)
    try:
        scanner.value()
        scanner.skip_space()
        if scanner.position < len(raw):
            raise scanner.error("after top-level value")
    except _SyntaxError as error:
        return str(error)
    return ""


class _Scanner:
    def __init__(self, raw: bytes) -> None:
        self._raw, self.position = raw, 0

    def error(self, where: str, *, inside: bool = False) -> _SyntaxError:
        """The error of the next byte. At the end Go reads a space, which is an error too `inside` a word or number."""
        if not self._next and not inside:
            return _SyntaxError(END_TEXT)
        letter = chr(self._raw[self.position]) if self._next else " "
        shown = {"'": r"\'", '"': '"'}.get(letter) or quoted_text(letter)[1:-1]
        return _SyntaxError(f"invalid character '{shown}' {where}")

    def skip_space(self) -> None:
        while self._next in _SPACE and self._next:
            self.position += 1

    @property
    def _next(self) -> bytes:
        return self._raw[self.position : self.position + 1]

    def _take(self, among: bytes) -> bool:
        """Step over the next byte if it is one of these."""
        taken = self._next != b"" and self._next in among
        self.position += taken
        return taken

    def value(self) -> None:
        self.skip_space()
        if self._take(b"{"):
            self._members()
        elif self._take(b"["):
            self._elements()
        elif self._take(b'"'):
            self._string()
        elif self._next and self._next in b"-" + _DIGITS:
            self._number()
        elif self._next in _LITERALS:
            self._literal(_LITERALS[self._next])
        else:
            raise self.error("looking for beginning of value")

    def _members(self) -> None:
        self.skip_space()
        if self._take(b"}"):
            return
        while True:
            self.skip_space()
            if not self._take(b'"'):
                raise self.error("looking for beginning of object key string")
            self._string()
            self.skip_space()
            if not self._take(b":"):
                raise self.error("after object key")
            self.value()
            self.skip_space()
            if self._take(b"}"):
                return
            if not self._take(b","):
                raise self.error("after object key:value pair")

    def _elements(self) -> None:
        self.skip_space()
        if self._take(b"]"):
            return
        while True:
            self.value()
            self.skip_space()
            if self._take(b"]"):
                return
            if not self._take(b","):
                raise self.error("after array element")

    def _string(self) -> None:
        while not self._take(b'"'):
            if self._take(b"\\"):
                if self._take(b"u"):
                    for _ in range(4):
                        if not self._take(_HEX_DIGITS):
                            raise self.error(r"in \u hexadecimal character escape", inside=True)
                elif not self._take(_ESCAPES):
                    raise self.error("in string escape code", inside=True)
            elif self._next < b" ":
                raise self.error("in string literal")
            else:
                self.position += 1

    def _number(self) -> None:
        self._take(b"-")
        if not self._take(b"0") and not self._digits():
            raise self.error("in numeric literal", inside=True)
        if self._take(b".") and not self._digits():
            raise self.error("after decimal point in numeric literal", inside=True)
        if self._take(b"eE"):
            self._take(b"+-")
            if not self._digits():
                raise self.error("in exponent of numeric literal", inside=True)

    def _digits(self) -> bool:
        start = self.position
        while self._take(_DIGITS):
            pass
        return self.position > start

    def _literal(self, word: bytes) -> None:
        for index in range(len(word)):
            if not self._take(word[index : index + 1]):
                raise self.error(f"in literal {word.decode()} (expecting '{chr(word[index])}')", inside=True)
