"""Command line flags made from the fields of the dataclasses that they fill.

The help of a flag is the docstring under its field, its choices are those of a `Literal`, its bounds those of the type
(`machine/bounds.py`). A wrong value is therefore wrong usage, exit code 2, for every verb.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import sys
import textwrap
from collections.abc import Callable, Collection, Sequence
from dataclasses import MISSING, fields
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, cast, get_args, get_origin, get_type_hints

from ..collection.columns import parse_columns
from ..errors import InputError, UsageError
from ..machine.bounds import AboveZero, NotNegative, Positive, bound_mistake
from ..machine.credentials import check_credentials
from ..machine.names import nearest
from ..machine.places import is_address
from ..models.embedded import embedded_scorers

T = TypeVar("T")


def add_fields(group: Any, kind: type, names: str, **how: Any) -> None:
    """A flag for each of these fields."""
    for name in names.split():
        add_field(group, kind, name, **how)


def add_field(group: Any, kind: type, name: str, *, flag: str | None = None, is_unset: bool = False, **given: Any) -> None:
    """A flag for a field, `--its-name` unless `flag` says otherwise; `given` replaces what argparse would get by itself.

    `is_unset` leaves a flag that was not typed at None, where something else (a recipe, a run) may say the value.
    """
    default, hint = _defaults(kind)[name], _hints(kind)[name]
    word = flag or f"--{'no-' if default is True else ''}{name.replace('_', '-')}"
    how: dict[str, Any] = {"default": None if is_unset else default, "help": _help(kind, name, default)}
    if isinstance(default, bool):
        how |= {"action": "store_false" if default else "store_true", "dest": name}
    elif choices := choices_of(hint):
        how |= {"choices": choices}
    else:
        how |= {"type": converter(hint)} | _metavar(hint)
    group.add_argument(word, **how | given)


def add_settings(parser: argparse.ArgumentParser, kind: type, names: str, *, called: str | None = None, **given: Any) -> None:
    """Fields that have no flag of their own: `--set NAME=VALUE` says them, by the field's name or as `called` here."""
    known = next((action for action in parser._actions if isinstance(action, Set)), None) or _add_set(parser)
    for field in names.split():
        name, is_switch = called or field, isinstance(_defaults(kind)[field], bool)
        words: dict[str, Any] = {"action": "store", "type": _yes_or_no, "metavar": "yes|no"} if is_switch else {}
        add_field(known.inner, kind, field, flag=f"--set {name}", **{"dest": name} | words | given)
        known.group.description = f"{known.group.description}\n{known.line(name)}".lstrip("\n")
        parser.set_defaults(**{name: known.inner.get_default(name)})


class Set(argparse.Action):
    """`--set NAME=VALUE`; each name is a flag of `inner`, so it is converted, checked and described as a flag is."""

    inner: argparse.ArgumentParser
    group: argparse._ArgumentGroup

    @property
    def settings(self) -> dict[str, argparse.Action]:
        return {action.dest: action for action in self.inner._actions}

    def line(self, name: str) -> str:
        action = self.settings[name]
        value = "{" + ",".join(map(str, action.choices)) + "}" if action.choices else action.metavar or name.upper()
        text = f"{name}={value}: {action.help}".replace("%%", "%")
        return textwrap.fill(text, 98, initial_indent="  ", subsequent_indent="      ", break_on_hyphens=False)

    def __call__(self, parser: Any, namespace: Any, text: Any, option_string: str | None = None) -> None:
        name, sign, value = text.partition("=")
        if name not in self.settings:
            near = nearest(name, self.settings)
            hint = f"did you mean {near}?" if near else f"there are {', '.join(sorted(self.settings))}."
            raise argparse.ArgumentError(self, f"there is no setting {name!r}; {hint}")
        if not sign or (isinstance(before := getattr(namespace, name), tuple) and before):
            raise argparse.ArgumentError(self, f"write {name}={','.join(('FIRST', 'SECOND') if sign else ('VALUE',))}.")
        self.inner.parse_args([f"--set {name}={value}"], namespace)


def _add_set(parser: argparse.ArgumentParser) -> Set:
    group = parser.add_argument_group("further settings", "")
    what = "one of the settings above; can be repeated"
    action = cast(Set, group.add_argument("--set", action=Set, default=argparse.SUPPRESS, metavar="NAME=VALUE", help=what))
    action.group, action.inner = group, argparse.ArgumentParser(prog=parser.prog, add_help=False, exit_on_error=False)
    return action


def _yes_or_no(text: str) -> bool:
    if text not in ("yes", "no"):
        raise argparse.ArgumentTypeError(f"{text} is neither yes nor no")
    return text == "yes"


def from_flags(kind: Callable[..., T], args: argparse.Namespace, **given: Any) -> T:
    """A dataclass from the flags that are called as its fields are, and from what is given instead."""
    flags = {field.name: getattr(args, field.name) for field in fields(kind) if hasattr(args, field.name)}  # type: ignore[arg-type]
    return kind(**flags | given)


def mode_mistakes(
    mode: str, arguments: Callable[[argparse.ArgumentParser], None], args: argparse.Namespace, read: Collection[str]
) -> list[str]:
    """What is wrong with the flags of a verb in a mode that reads some of them only: the others must have their defaults.

    `mode` is the beginning of the sentence, such as `--runs reads a finished attack`.
    """
    parser = argparse.ArgumentParser(add_help=False)
    arguments(parser)
    every = [flag for action in parser._actions for flag in (action.inner._actions if isinstance(action, Set) else [action])]
    unread = [flag for flag in every if flag.option_strings and flag.dest not in read]
    typed = [flag.option_strings[0] for flag in unread if getattr(args, flag.dest) != flag.default]
    return [f"{mode}; leave out {', '.join(typed)}."] if typed else []


def as_flag(parse: Callable[[str], T]) -> Callable[[str], T]:
    """A reader of values whose refusal is wrong usage."""

    def read(text: str) -> T:
        try:
            return parse(text)
        except InputError as mistake:
            raise argparse.ArgumentTypeError(str(mistake)) from mistake

    return read


def add_columns(parser: argparse.ArgumentParser) -> None:
    what = "which column of the data is what, where names are unknown, as query=question,text=body"
    parser.add_argument("--columns", type=as_flag(parse_columns), metavar="NAME=COLUMN,...", help=what)


def local_path(text: str) -> Path:
    """A path of this machine, for what is never written into a store."""
    if is_address(text):
        raise argparse.ArgumentTypeError(f"{text} is the address of a store; give a path of this machine")
    return Path(text)


def scorers_by_name(scorers: Sequence[str]) -> dict[str, str]:
    """The addresses in `[NAME=]ADDRESS` by name; without one, the address is the name."""
    addresses: dict[str, str] = {}
    mistakes = []
    for scorer in scorers:
        check_credentials(scorer)  # names and addresses are printed, logged and sent to clients
        name, sign, address = scorer.partition("=")
        model, plus, _ = name.partition("+")
        if not sign or {":", "/"} & {*name} or (plus and model in embedded_scorers()):  # an address that happens to hold the sign
            name, address = scorer, scorer
        if not (name and address):
            mistakes.append(f"{scorer!r} lacks a name or a scorer. Write NAME=SCORER, or the scorer alone.")
        elif name in addresses:
            mistakes.append(f"two scorers are called {name}. Name them: NAME=SCORER.")
        addresses[name] = address
    if mistakes:
        raise UsageError("\n".join(mistakes))
    return addresses


# -- what a field says of its flag


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


@cache
def _defaults(kind: type) -> dict[str, Any]:
    return {field.name: None if field.default is MISSING else field.default for field in fields(kind)}


def _help(kind: type, name: str, default: Any) -> str:
    text = field_texts(kind).get(name, "").removesuffix(".")
    first = text.partition(" ")[0]
    if first == "A" or first[1:].islower():  # not a name such as LoRA
        text = text[:1].lower() + text[1:]
    is_said = isinstance(default, bool) or default in (None, "", ()) or "default" in text
    shown = ",".join(default) if isinstance(default, tuple) else f"{default:g}" if isinstance(default, float) else default
    return (text if is_said else f"{text} (default: {shown})").replace("%", "%%")


@cache
def field_texts(kind: type) -> dict[str, str]:
    """Field -> the docstring under it, on one line; nothing where a package was installed without its source."""
    try:
        module = ast.parse(inspect.getsource(sys.modules[kind.__module__]))
    except OSError:
        return {}
    body = next(node.body for node in module.body if isinstance(node, ast.ClassDef) and node.name == kind.__name__)
    return {
        field.target.id: " ".join(text.value.value.split())
        for field, text in pairwise(body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
    }


def _plain(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """A type without None and without its bounds, and the bounds."""
    if options := [option for option in get_args(hint) if option is not type(None)]:
        if type(None) in get_args(hint):
            return _plain(options[0])
        if get_origin(hint) is Annotated:
            return options[0], hint.__metadata__
    return hint, ()


def choices_of(hint: Any) -> tuple[str, ...]:
    kind, _ = _plain(hint)
    return get_args(kind) if get_origin(kind) is Literal else ()


def _metavar(hint: Any) -> dict[str, str]:
    """The name of the value in the help; for a text, what argparse makes of the field's name."""
    kind, _ = _plain(hint)
    return {} if kind is str else {"metavar": {int: "N", float: "X"}.get(kind, "NAME,...")}


def converter(hint: Any) -> Callable[[str], Any]:
    """From the text of a flag to a value of this type, within its bounds."""
    kind, bounds = _plain(hint)
    if kind is str:
        return str
    if get_origin(kind) is tuple:
        return lambda text: tuple(map(converter(get_args(kind)[0]), text.split(",")))

    def convert(text: str) -> Any:
        value = kind(text)
        if mistake := bound_mistake(value, bounds):
            raise argparse.ArgumentTypeError(f"{text} {mistake}")
        return value

    convert.__name__ = kind.__name__  # argparse names it where the text is not a number at all
    return convert


positive = converter(Positive)
not_negative = converter(NotNegative)
above_zero = converter(AboveZero)
finite = converter(float)
