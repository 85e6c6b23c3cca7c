"""Parse a pattern into a tree (regcomp.c) that records which parts prefer the longest or shortest match, and how text is split.

The public function is `parse`. The tree is built as in PostgreSQL, because it decides which of several possible matches is selected.
Simple atoms are combined into one '=' part. A capture, a back reference or a change between greedy and non-greedy ends that part and is
followed by a part for the rest of the branch. Errors are 2201B ``invalid regular expression: …``.
"""

from __future__ import annotations

from headgate.expression.functions.regex.charset import ALL, CLASSES, CharSet, of_ranges, single
from headgate.expression.functions.regex.lexer import Flag, Lexer, element, fail
from headgate.expression.functions.regex.pattern import (
    CAPTURES,
    INFINITE,
    LONGER,
    MIXED,
    REFERS,
    SHORTER,
    At,
    BackReference,
    Chars,
    Choice,
    Concat,
    Look,
    Part,
    Pattern,
    PositionCondition,
    Repeat,
    Rex,
    without_conditions,
    without_groups,
)
from headgate.types import text_cache

_MAX_COUNT = 255
_PREFERENCE = LONGER | SHORTER
_PLACES = {
    "SBEGIN": PositionCondition.START, "SEND": PositionCondition.END, "<": PositionCondition.WORD_START, ">": PositionCondition.WORD_END,
    "WBDRY": PositionCondition.WORD_EDGE, "NWBDRY": PositionCondition.NO_WORD_EDGE,
}  # fmt: skip


def parse(text: str, flags: Flag = Flag.ADVANCED) -> Pattern:
    """Parse a pattern. Raise 2201B if it is invalid."""
    return _parsed(text, flags)


@text_cache.limited(1 << 18, overhead=64)
def _parsed(text: str, flags: Flag) -> Pattern:
    return _Parser(text, flags).whole()


def _up(flags: int) -> int:
    """Return the flags that a parent inherits. If children have both preferences, the parent is MIXED."""
    mixed = MIXED if flags & LONGER and flags & SHORTER else 0
    return (flags & (MIXED | CAPTURES | REFERS)) | mixed


def _messy(flags: int) -> bool:
    return bool(flags & (MIXED | CAPTURES | REFERS))


def _combine(first: int, second: int) -> int:
    """Combine the flags of two parts. The first part with a preference decides it."""
    return _up(first | second) | ((first & _PREFERENCE) or (second & _PREFERENCE))


class _Parser:
    def __init__(self, text: str, flags: Flag) -> None:
        self.lexer = Lexer(text, flags)
        self.groups: dict[int, Part] = {}
        self.refers = False

    def whole(self) -> Pattern:
        tree = self._choice("EOS", look=False)
        return Pattern(tree, tree.language(), self.lexer.groups, self.refers, bool(self.lexer.flags & Flag.FOLD))

    def _sees(self, kind: str) -> bool:
        return self.lexer.token.kind == kind

    def _eats(self, kind: str) -> bool:
        if not self._sees(kind):
            return False
        self.lexer.next()
        return True

    def _choice(self, stopper: str, *, look: bool) -> Part:
        branches = [self._branch(stopper, look)]
        while self._eats("|"):
            branches.append(self._branch(stopper, look))
        if not self._sees(stopper):
            fail("EPAREN")
        if len(branches) == 1:
            return branches[0]
        flags = LONGER
        for branch in branches:
            flags |= _up(flags | branch.flags)
        if not _messy(flags):
            return Part("=", flags, Choice(tuple(branch.language() for branch in branches)))
        return Part("|", flags, children=branches)

    def _branch(self, stopper: str, look: bool) -> Part:
        items: list[Rex] = []
        flags = 0
        while self.lexer.token.kind not in ("|", stopper, "EOS"):
            result = self._parse_quantified(stopper, look, items, flags)
            if isinstance(result, Part):
                return result
            flags = result
        return Part("=", flags, Concat(tuple(items)))

    def _parse_quantified(self, stopper: str, look: bool, items: list[Rex], flags: int) -> int | Part:
        """Parse one atom with its quantifier and append it to `items`. Return the flags so far, or the part of the whole branch."""
        condition = self._condition()
        if condition is not None:
            items.append(condition)
            return flags
        kind = self.lexer.token.kind
        number, atom, rex = self._atom(look)
        low, high, prefer = self._quantifier()
        if low == 0 and high == 0:
            items.append(Concat())
            return flags
        below = flags | prefer | (atom.flags if atom is not None else 0)
        if not number and not _messy(_up(below)):
            body = atom.language() if atom is not None else rex
            items.append(body if low == high == 1 else Repeat(body, low, high))
            return below
        atom = atom or Part("=", 0, rex)
        first = self._repeat(kind, atom, low, high, prefer)
        return self._with_rest(stopper, look, items, flags, first, _combine(prefer, atom.flags))

    def _repeat(self, kind: str, atom: Part, low: int, high: int, prefer: int) -> Part:
        """Return the part of an atom that is not simple, with its quantifier."""
        if kind == "BACKREF":
            body = without_conditions(self.groups[atom.reference].language())
            atom.rex = BackReference(atom.reference, body, low, high)
            atom.low, atom.high = low, high
            atom.flags |= _combine(prefer, atom.flags)
            return atom
        own = atom.flags & (_PREFERENCE | MIXED)
        if low == high == 1 and (prefer == 0 or own in (0, prefer)):
            return atom
        flags = _combine(prefer, atom.flags)
        if not atom.flags & (CAPTURES | REFERS):
            return Part("=", flags, Repeat(atom.language(), low, high))
        if low > 0 and not atom.flags & REFERS:
            before = Repeat(without_groups(atom.language()), low - 1, high if high == INFINITE else high - 1)
            return Part(".", flags, children=[Part("=", flags & _PREFERENCE, before), atom])
        return Part("*", flags, children=[atom], low=low, high=high)

    def _with_rest(self, stopper: str, look: bool, items: list[Rex], flags: int, first: Part, inner: int) -> Part:
        """Return the branch: the items before, the part `first`, and the rest, which is parsed here."""
        prefix = Part("=", flags, Concat(tuple(items)))
        if self.lexer.token.kind in ("|", stopper, "EOS"):
            if not items:
                return first
            return Part(".", flags | _combine(flags, first.flags), children=[prefix, first])
        rest = self._branch(stopper, look)
        inner |= _combine(inner, rest.flags)
        outer = flags | _combine(flags, inner)
        if not items:
            return Part(".", outer, children=[first, rest])
        if first.kind == rest.kind == "=" and not _messy(_up(first.flags | rest.flags)):
            second = Part("=", _combine(first.flags, rest.flags), Concat((first.language(), rest.language())))
        else:
            second = Part(".", inner, children=[first, rest])
        return Part(".", outer, children=[prefix, second])

    def _condition(self) -> Rex | None:
        """Parse a condition on the position. Return None if the next token is not one."""
        kind, value = self.lexer.token.kind, self.lexer.token.value
        lines = bool(self.lexer.flags & Flag.NEWLINE_ANCHORS)
        if kind == "^":
            rex: Rex = At(PositionCondition.LINE_START if lines else PositionCondition.START)
        elif kind == "$":
            rex = At(PositionCondition.LINE_END if lines else PositionCondition.END)
        elif kind in _PLACES:
            rex = At(_PLACES[kind])
        elif kind == "LOOK":
            self.lexer.next()
            body = self._choice(")", look=True)
            rex = Look(body.language(), behind=value >= 2, negated=value % 2 == 1)
        else:
            return None
        self.lexer.next()
        return rex

    def _atom(self, look: bool) -> tuple[int, Part | None, Rex]:
        """Return (number of the group or reference, part, rex) of an atom. The rex is used if there is no part."""
        token = self.lexer.token
        if token.kind in "*+?{" or token.kind == "RANGE":
            fail("BADRPT")
        if token.kind == ")" and self.lexer.flags & Flag.ADVANCED != Flag.EXTENDED:
            fail("EPAREN")
        if token.kind == "(":
            return self._group(capturing=bool(token.value) and not look, look=look)
        if token.kind == "BACKREF":
            if look or token.value not in self.groups:
                fail("ESUBREG")
            self.refers = True
            self.lexer.next()
            return token.value, Part("b", REFERS, reference=token.value), Concat()
        if token.kind == "[":
            charset = self._bracket(negated=token.value == 0)
        elif token.kind == ".":
            charset = ALL.without("\n") if self.lexer.flags & Flag.NEWLINE_STOPS else ALL
        elif token.kind in ("CLASS", "NOT CLASS"):
            assert token.set is not None
            charset = token.set if token.kind == "CLASS" else token.set.complement()
        else:
            charset = self._character(token.value)
        self.lexer.next()
        return 0, None, Chars(charset)

    def _group(self, *, capturing: bool, look: bool) -> tuple[int, Part | None, Rex]:
        number = 0
        if capturing:
            self.lexer.groups += 1
            number = self.lexer.groups
        self.lexer.next()
        part = self._choice(")", look=look)
        self.lexer.next()
        if number:
            if part.capture:
                part = Part("(", part.flags, children=[part])
            part.flags |= CAPTURES
            part.capture = number
            self.groups[number] = part
        return number, part, Concat()

    def _quantifier(self) -> tuple[int, int, int]:
        """Return (minimum, maximum, preference)."""
        token = self.lexer.token
        simple = {"*": (0, INFINITE), "+": (1, INFINITE), "?": (0, 1)}.get(token.kind)
        if simple is not None:
            self.lexer.next()
            return (*simple, LONGER if token.value else SHORTER)
        if token.kind != "{":
            return 1, 1, 0
        self.lexer.next()
        low = high = self._count()
        ranged = self._eats(",")
        if ranged:
            high = self._count() if self._sees("DIGIT") else INFINITE
            if high != INFINITE and low > high:
                fail("BADBR")
        if not self._sees("}"):
            fail("BADBR")
        prefer = (LONGER if self.lexer.token.value else SHORTER) if ranged else 0
        self.lexer.next()
        return low, high, prefer

    def _count(self) -> int:
        count = 0
        while self._sees("DIGIT") and count < _MAX_COUNT:
            count = count * 10 + self.lexer.token.value
            self.lexer.next()
        if self._sees("DIGIT") or count > _MAX_COUNT:
            fail("BADBR")
        return count

    def _fold(self, chars: CharSet) -> CharSet:
        return chars.either_case() if self.lexer.flags & Flag.FOLD else chars

    def _character(self, code: int) -> CharSet:
        return self._fold(single(code))

    def _bracket(self, *, negated: bool) -> CharSet:
        charset = CharSet(())
        self.lexer.next()
        while not self._sees("]"):
            charset = charset | self._bracket_part()
        if not negated:
            return charset
        charset = charset.complement()
        return charset.without("\n") if self.lexer.flags & Flag.NEWLINE_STOPS else charset

    def _bracket_part(self) -> CharSet:
        token = self.lexer.token
        if token.kind == "RANGE":
            fail("ERANGE")
        if token.kind in ("CLASS", "NOT CLASS"):
            assert token.set is not None
            self.lexer.next()
            return token.set if token.kind == "CLASS" else token.set.complement()
        if token.kind == "[:":
            return self._class()
        if token.kind == "[=":
            return self._character(self._element())
        first = self._endpoint()
        if not self._eats("RANGE"):
            return self._character(first)
        if self.lexer.token.kind not in ("PLAIN", "RANGE", "[."):
            fail("ERANGE")
        last = self._endpoint()
        if first > last:
            fail("ERANGE")
        return self._fold(of_ranges([(first, min(last, ALL.ranges[0][1]))]))

    def _endpoint(self) -> int:
        if self._sees("[."):
            return self._element()
        code = self.lexer.token.value
        self.lexer.next()
        return code

    def _element(self) -> int:
        name = self.lexer.named()
        if not name:
            fail("ECOLLATE")
        return element(name)

    def _class(self) -> CharSet:
        name = self.lexer.named()
        if name not in CLASSES:
            fail("ECTYPE")
        if self.lexer.flags & Flag.FOLD and name in ("lower", "upper"):
            return CLASSES["alpha"]
        return CLASSES[name]
