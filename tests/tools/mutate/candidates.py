# SPDX-License-Identifier: MIT
"""Where a source can be wrong by a little: candidates for tests/tools/mutate/mutate.py, found by libclang.

A candidate is a range of a file and the text that may stand there instead, both with the meaning of one expression;
kind "dropped statement" has no text: the statement does not run. Left alone are constant expressions, which no switch
at run time can change; what errors say; and WEFT_CHECK: without a mistake elsewhere nobody breaks what it states.
"""
import re
from collections import namedtuple

from clang.cindex import CursorKind as K, Index, TypeKind

Candidate = namedtuple("Candidate", "file start end kind text")  # text: None for a statement that is dropped

COMPARISONS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
LOGIC = {"&&": "||", "||": "&&"}
ARITHMETIC = {"+": "-", "-": "+", "*": "+", "/": "*", "%": "/"}
CALLS = {"std::min": "std::max", "std::max": "std::min", "std::floor": "std::ceil", "std::ceil": "std::floor",
         "std::sin": "std::cos", "std::cos": "std::sin"}
CONSTANT = {K.ENUM_DECL, K.STATIC_ASSERT, K.TEMPLATE_REF, K.TYPE_REF, K.CXX_THROW_EXPR, K.NAMESPACE_REF,
            K.TEMPLATE_TYPE_PARAMETER, K.TEMPLATE_NON_TYPE_PARAMETER}
STATEMENTS = {K.CALL_EXPR, K.BINARY_OPERATOR, K.COMPOUND_ASSIGNMENT_OPERATOR, K.UNARY_OPERATOR, K.CONTINUE_STMT,
              K.BREAK_STMT}
BODIES = {K.COMPOUND_STMT, K.IF_STMT, K.FOR_STMT, K.CXX_FOR_RANGE_STMT, K.WHILE_STMT}


def is_number(cursor):
    kind = cursor.type.get_canonical().kind
    return TypeKind.BOOL.value <= kind.value <= TypeKind.LONGDOUBLE.value


class Finder:
    def __init__(self, wanted):
        self.wanted, self.texts, self.found = wanted, {}, set()  # wanted: files, as libclang names them

    def text(self, start, end):
        return self.texts[self.file][start:end].decode()

    def span(self, cursor):
        return cursor.extent.start.offset, cursor.extent.end.offset

    def of(self, cursor):
        return self.text(*self.span(cursor))

    def add(self, span, kind, text):
        if "WEFT_CHECK" in self.text(*span):  # a macro's condition is no expression
            return
        if text is None or ("//" not in text and "\n#" not in text and text.strip() and "/*" not in text):
            self.found.add(Candidate(self.file, *span, kind, text and " ".join(text.split())))

    def binary(self, cursor, children):
        (a0, a1), (b0, b1) = map(self.span, children)
        operator = self.text(a1, b0).strip() if a1 <= b0 else ""
        left, right = self.text(a0, a1), self.text(b0, b1)
        spans = self.span(cursor)
        if operator in COMPARISONS:
            self.add(spans, "comparison", f"{left} {COMPARISONS[operator]} {right}")
        elif operator in LOGIC:
            self.add(spans, "logic", f"({left}) {LOGIC[operator]} ({right})")
        elif operator in ARITHMETIC and is_number(children[0]) and is_number(children[1]):
            self.add(spans, "arithmetic", f"({left}) {ARITHMETIC[operator]} ({right})")
            if operator in "-/%" and operator != "":
                self.add(spans, "swapped operands", f"({right}) {operator} ({left})")

    def call(self, cursor):
        arguments = [a for a in cursor.get_arguments() if a is not None and a.extent.end.offset > a.extent.start.offset]
        whole, spans = self.of(cursor), [self.span(a) for a in arguments]
        start, end = self.span(cursor)
        name = re.split("[(<]", whole)[0]
        if name in CALLS:
            self.add((start, end), "other function", CALLS[name] + whole[len(name):])
        if not arguments or name in CALLS or name == "str" or not self.text(start, spans[0][0]).rstrip().endswith(("(", "{")):
            return
        for (a, sa), (b, sb) in zip(zip(arguments, spans), zip(arguments[1:], spans[1:])):
            ta, tb = self.text(*sa), self.text(*sb)
            types = [x.type.get_canonical().spelling for x in (a, b)]
            same = types[0] == types[1] and "iterator" not in types[0]
            if same and ta != tb and sa[1] <= sb[0] and not (ta + tb).startswith("{"):
                between = self.text(sa[1], sb[0])
                self.add((start, end), "swapped arguments",
                         self.text(start, sa[0]) + tb + between + ta + self.text(sb[1], end))
        target = cursor.referenced
        parameters = list(target.get_arguments()) if target else []
        if len(arguments) == len(parameters) and "=" in [t.spelling for t in parameters[-1].get_tokens()]:
            kept = self.text(start, spans[-2][1] if len(spans) > 1 else spans[-1][0])
            self.add((start, end), "default", kept + ")")

    def designated(self, cursor):
        owner = cursor.type.get_canonical().spelling.replace("const ", "")
        for child in cursor.get_children():
            parts = [child, *child.get_children()]
            for part in parts:
                start, end = self.span(part)
                name = re.search(r"[{,]\s*\.(\w+)\s*=\s*$", self.text(max(0, start - 60), start))
                if name and not self.text(start, end).startswith(("{", "[", ".")) and "(" not in owner:
                    self.add((start, end), "default", f"{owner}{{}}.{name[1]}")

    def literal(self, cursor, parent):
        text, (start, end) = self.of(cursor), self.span(cursor)
        before, after = self.text(max(0, start - 8), start).rstrip()[-1:], self.text(end, end + 1)
        declared = parent is not None and parent.kind in (K.VAR_DECL, K.FIELD_DECL)
        if before in "<[" and after in ",>]" and declared or before in "<," and after == ">":
            return  # an argument of a template, the size of an array
        if re.fullmatch(r"\d+", text):
            self.add(self.span(cursor), "constant", str(int(text) + 1))
        elif re.fullmatch(r"[\d.]+(e-?\d+)?f?", text):
            self.add(self.span(cursor), "constant", f"2 * {text}" if float(text.rstrip("f")) else "1.0")
        elif text in ("true", "false"):
            self.add(self.span(cursor), "constant", "false" if text == "true" else "true")

    def walk(self, cursor, parent=None):
        kind = cursor.kind
        if cursor.location.file:
            self.file = cursor.location.file.name
            if kind != K.TRANSLATION_UNIT and self.file not in self.wanted:
                return
            if self.file not in self.texts:
                with open(self.file, "rb") as f:
                    self.texts[self.file] = f.read()
        if kind in CONSTANT or self.is_constant(cursor, parent) or (
                kind == K.CALL_EXPR and cursor.spelling in ("fail", "check_failed")):
            return
        children = list(cursor.get_children())
        if kind == K.BINARY_OPERATOR and len(children) == 2:
            self.binary(cursor, children)
        elif kind == K.CALL_EXPR and cursor.spelling.startswith("operator"):
            arguments = list(cursor.get_arguments())
            if len(arguments) == 2:
                self.binary(cursor, arguments)
        elif kind == K.CALL_EXPR:
            self.call(cursor)
        elif kind == K.INIT_LIST_EXPR:
            self.designated(cursor)
        elif kind in (K.INTEGER_LITERAL, K.FLOATING_LITERAL, K.CXX_BOOL_LITERAL_EXPR):
            self.literal(cursor, parent)
        elif kind == K.IF_STMT and not any(c.kind == K.DECL_STMT for c in children[:1]):
            condition = self.of(children[0])
            if "constexpr" not in self.text(cursor.extent.start.offset, children[0].extent.start.offset):
                self.add(self.span(children[0]), "negated", f"!({condition})")
        elif kind == K.CONDITIONAL_OPERATOR and len(children) == 3:
            c, a, b = map(self.of, children)
            self.add(self.span(cursor), "negated", f"({c}) ? {b} : {a}")
        elif kind == K.UNARY_OPERATOR and re.match("!(?!=)", self.of(cursor)):
            self.add(self.span(cursor), "negated", self.of(cursor)[1:])
        for i, child in enumerate(children):
            body = kind == K.COMPOUND_STMT or (kind in BODIES and i > 0 and child == children[-1])
            if body and not self.of(child).startswith("WEFT_CHECK") and (child.kind in STATEMENTS or self.of_wrapped_call(child)):
                self.file = child.location.file.name if child.location.file else self.file
                self.add(self.span(child), "dropped statement", None)
            self.walk(child, cursor)
            if cursor.location.file:
                self.file = cursor.location.file.name

    def of_wrapped_call(self, cursor):  # a call whose temporaries end with the statement
        inner = list(cursor.get_children())
        return cursor.kind == K.UNEXPOSED_EXPR and len(inner) == 1 and inner[0].kind in STATEMENTS

    def is_constant(self, cursor, parent):
        if parent is not None and parent.kind == K.CASE_STMT:
            return cursor == next(parent.get_children())
        if cursor.kind not in (K.VAR_DECL, K.FIELD_DECL):
            return False
        words = [t.spelling for t in cursor.get_tokens()][:4] if cursor.kind == K.VAR_DECL else []
        return ("constexpr" in words or cursor.is_bitfield()
                or (cursor.kind == K.VAR_DECL and parent is not None and parent.kind in (K.NAMESPACE, K.TRANSLATION_UNIT)))


def find(path, arguments, wanted):
    """The candidates of a translation unit in the files `wanted`."""
    finder = Finder(wanted)
    finder.walk(Index.create().parse(path, args=arguments).cursor)
    return finder.found
