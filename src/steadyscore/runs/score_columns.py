"""What the columns of a score file must hold: each value by itself, then all of them together.

A mistake is one sentence that counts its rows, names the first of them with their lines, and says what to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, get_args

import numpy as np

from ..collection.format import CONTROL
from ..errors import InputError
from ..terms import LARGEST_SCORE, Array, Partition
from .layout import GRADE_COLUMNS, score_schema
from .table import FIRST_STAGE

if TYPE_CHECKING:
    import pyarrow as pa

REQUIRED = ("query_id", "permutation", "candidate_id", "score")
TEXTS = ("query_id", "candidate_id", "partition")
SHARES = (*GRADE_COLUMNS, "label_mass")
MAX_EXAMPLES = 5
"""Places that one kind of mistake names before it only counts."""
SLACK = 1e-3
"""What rounding may add to a probability."""
LOOKS_LIKE_A_NUMBER = r"^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*$"


@dataclass(frozen=True, slots=True)
class Rows:
    """The table of a score file, and where its rows came from."""

    table: pa.Table
    name: str
    """The file as messages call it."""
    lines_of: Callable[[Array], list[str]]
    """Row numbers of the file -> "line 3"."""
    origin: Array | None = None
    """Row of this table -> row of the file; None where they are the same."""

    def places(self, rows: Array) -> str:
        """The first rows by line, query, permutation and candidate."""
        first = rows[:MAX_EXAMPLES]
        where = self.lines_of(first if self.origin is None else self.origin[first])
        words = {"query_id": "query", "permutation": "permutation", "candidate_id": "candidate"}
        named = [
            ", ".join([line, *(f"{word} {row[name]}" for name, word in words.items() if row[name] is not None)])
            for line, row in zip(where, self.table.select(list(words)).take(first).to_pylist(), strict=True)
        ]
        return "; ".join(named) + (f"; and {len(rows) - MAX_EXAMPLES:,} more" if len(rows) > MAX_EXAMPLES else "")

    def told(self, odd: Array, what: str, remedy: str = "") -> list[str]:
        """A sentence about the rows that are odd (a mask, or their numbers): how many, which, what to do; none without any."""
        at = np.flatnonzero(odd) if odd.dtype == bool else odd
        return [f"{len(at):,} {what}: {self.places(at)}. {remedy}".rstrip()] if len(at) else []

    def values(self, name: str) -> Array:
        """A column as float64, NaN where it is empty."""
        values: Array = self.table.column(name).cast("float64").to_numpy(zero_copy_only=False)
        return values


def sort_rows(rows: Rows) -> Rows:
    """By query (in the order of the file), permutation and candidate id."""
    import pyarrow.compute as pc

    table = rows.table
    keyed = table.append_column("_query", pc.index_in(table.column("query_id"), pc.unique(table.column("query_id"))))
    order = pc.sort_indices(keyed, [(name, "ascending") for name in ("_query", "permutation", "candidate_id")])
    return replace(rows, table=table.take(order), origin=order.to_numpy())


# -- each value


def check_columns(rows: Rows) -> Rows:
    """The columns with the kinds of the score table; every value that has another kind is named."""
    import pyarrow as pa

    kinds = [kind for kind in score_schema() if kind.name in rows.table.column_names]
    rows = replace(rows, table=pa.table({kind.name: _plain(rows.table.column(kind.name)) for kind in kinds}))
    mistakes, columns = _incomplete_groups(rows), {}
    for kind in kinds:
        column = rows.table.column(kind.name)
        if kind.name in REQUIRED:
            mistakes += rows.told(_true_rows(column.is_null()), f"rows have no {kind.name}", "Fill them in.")
        try:
            columns[kind.name] = _texts(column) if kind.name in TEXTS else _numbers(column, kind)
        except pa.ArrowException:
            mistakes.append(_kind_mistake(rows, kind))
        if kind.name in ("query_id", "candidate_id") and kind.name in columns:
            mistakes += _bad_ids(rows, kind.name, columns[kind.name])
    if mistakes:
        raise InputError([f"{rows.name}: {mistake}" for mistake in mistakes])
    return replace(rows, table=pa.table(columns))


def _incomplete_groups(rows: Rows) -> list[str]:
    """Columns that mean nothing without others."""
    names, mistakes = set(rows.table.column_names), []
    for group in (("slot", "window"), GRADE_COLUMNS):
        if (given := names.intersection(group)) and len(given) < len(group):
            has, lacks = (", ".join(name for name in group if (name in given) is there) for there in (True, False))
            mistakes.append(f"there is {has} but no {lacks}. Give all of {', '.join(group)}, or none of them.")
    return mistakes


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column as its values are, with text of one kind, however a file keeps it."""
    import pyarrow as pa

    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    return column.cast(pa.string() if pa.types.is_large_string(kind) or pa.types.is_string_view(kind) else kind)


def _texts(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column of text; whole numbers stand for their digits, other kinds (times, fractions) are not text."""
    import pyarrow as pa

    if not any(test(column.type) for test in (pa.types.is_string, pa.types.is_integer, pa.types.is_null)):
        raise pa.ArrowTypeError(f"{column.type} is not text")
    return column.cast(pa.string())


def _numbers(column: pa.ChunkedArray, kind: pa.Field) -> pa.ChunkedArray:
    """A column of numbers, also where they are written as text. A whole number may have a point (1.0)."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_string(column.type):
        if kind.name == "permutation" and not pc.any(pc.match_substring_regex(column, LOOKS_LIKE_A_NUMBER)).as_py():
            names = sorted(set(column.drop_null().to_pylist()))  # where all are names, they count in the order of the names
            return pc.index_in(column, pa.array(names, pa.string()))
        whole = pc.match_substring_regex(column, r"^\s*[+-]?\d{16,}\s*$")
        column = pc.utf8_trim_whitespace(column).cast(pa.float64())
        if pc.any(pc.and_(whole, pc.greater(pc.abs(column), 2.0**53))).as_py():
            raise pa.ArrowInvalid("whole numbers of which neighbours become one")
    elif not any(test(column.type) for test in (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal,
                                                pa.types.is_null)):  # fmt: skip
        raise pa.ArrowTypeError(f"{column.type} is not a number")
    if pa.types.is_integer(kind.type):
        whole = column.cast(kind.type)
        return pc.max_element_wise(whole, 0, skip_nulls=False).cast(kind.type) if kind.name == "relevance" else whole
    return column.cast(pa.float64(), safe=pa.types.is_integer(column.type)).cast(kind.type, safe=False)


def _kind_mistake(rows: Rows, kind: pa.Field) -> str:
    """The rows whose value cannot be read as what the column holds."""
    import pyarrow as pa

    what = "a whole number of 32 bits" if pa.types.is_integer(kind.type) else "text" if kind.name in TEXTS else "a number"
    column = rows.table.column(kind.name)
    if not (pa.types.is_string(column.type) or pa.types.is_floating(column.type) or pa.types.is_integer(column.type)):
        return f"{kind.name} is a column of {column.type}, which is not {what}. Write it as {what.removeprefix('a ')}."
    if kind.name in TEXTS:
        return f"{kind.name} is a column of {column.type}, which is not text: 1.0 and 1 would be one id. Write it as text."

    def fits(value: object) -> bool:
        try:
            _numbers(pa.chunked_array([pa.array([value, "0"] if isinstance(value, str) else [value])]), kind)
        except (pa.ArrowException, OverflowError):  # the latter of whole numbers beyond 63 bits
            return False
        return True

    values = column.to_pylist()
    names = [repr(value) for value in values]
    odd = [name for name, value in dict(zip(names, values, strict=True)).items() if not fits(value)]
    if what == "a number" and all(value.strip("'+- ").isdecimal() for value in odd):
        what = "a number up to 2^53, beyond which neighbours become one"
    places = np.flatnonzero(np.isin(names, odd))
    hint = "Number all or name all" if kind.name == "permutation" else f"Write {what}"
    named = ", ".join(value if len(value) <= 60 else f"{value[:57]}..." for value in odd[:MAX_EXAMPLES])
    return rows.told(places, f"rows have {named} as {kind.name}, which is not {what}", f"{hint}.")[0]


def _bad_ids(rows: Rows, name: str, column: pa.ChunkedArray) -> list[str]:
    """Ids are text of one line: not blank, without control characters."""
    import pyarrow.compute as pc

    blank = pc.equal(pc.utf8_trim_whitespace(column), "")
    bad = _true_rows(pc.fill_null(pc.or_(pc.match_substring_regex(column, CONTROL_CLASS), blank), False))
    told = rows.told(bad, f"rows have a blank {name}, or one with a control character", "Write text of one line.")
    return list(map(_escape_controls, told))


CONTROL_CLASS = CONTROL.pattern.replace(r"\x7f-\x9f", r"\x{7f}-\x{9f}")  # RE2's spelling of characters beyond ASCII


def _escape_controls(text: str) -> str:
    return CONTROL.sub(lambda control: repr(control.group())[1:-1], text)


def _true_rows(column: pa.ChunkedArray) -> Array:
    return np.flatnonzero(column.to_numpy())


# -- all together


@dataclass(frozen=True, slots=True)
class _Sorted:
    """Sorted rows as numbers that numpy compares."""

    rows: Rows
    query: Array
    """Number of the query of each row."""
    candidate: Array
    permutation: Array
    starts: Array
    """First row of every query."""
    by_candidate: Array
    """The rows by query and candidate."""
    is_next: Array
    """Of each of these but the first, whether it is of the same candidate as the one before."""

    @classmethod
    def of(cls, rows: Rows) -> _Sorted:
        query, candidate = (_codes(rows, name)[0] for name in ("query_id", "candidate_id"))
        order = np.lexsort((candidate, query))
        is_next = (np.diff(query[order]) == 0) & (np.diff(candidate[order]) == 0)
        starts = np.flatnonzero(np.diff(query, prepend=-1))
        return cls(rows, query, candidate, rows.table.column("permutation").to_numpy(), starts, order, is_next)

    def pool_sizes(self) -> Array:
        """How many candidates the query of each row has."""
        sizes: Array = np.bincount(self.query[self.by_candidate[np.r_[True, ~self.is_next]]])[self.query]
        return sizes

    def changes(self, values: Array) -> Array:
        """Rows whose value is another than that of the row before, of the same query."""
        changed: Array = np.r_[False, (np.diff(self.query) == 0) & (np.diff(values) != 0)]
        return changed


def _codes(rows: Rows, name: str) -> tuple[Array, list[str]]:
    """(number of each row's text, the texts) of a column; texts are numbered as they come."""
    column = rows.table.column(name).combine_chunks().fill_null("").dictionary_encode()
    return column.indices.to_numpy(), column.dictionary.to_pylist()


def check_rows(rows: Rows) -> None:
    """Refuse a sorted table whose rows contradict each other, with all mistakes at once."""
    table, names = _Sorted.of(rows), rows.table.column_names
    mistakes = [told for odd, what, remedy in _odd_values(table) for told in rows.told(odd, what, remedy)]
    same = ~np.r_[True, np.any([np.diff(key) for key in (table.query, table.permutation, table.candidate)], axis=0)]
    repeated = rows.told(same, "rows stand twice", "Keep one score per query, permutation and candidate.")
    mistakes += [*_unpermuted_queries(table), *(repeated or _unequal_pools(table))]
    if "relevance" in names and not repeated:
        relevance = np.nan_to_num(rows.values("relevance"), nan=-1)[table.by_candidate]
        changed = np.sort(table.by_candidate[1:][table.is_next & (np.diff(relevance) != 0)])
        mistakes += rows.told(changed, "rows give a candidate another relevance than its row before")
    mistakes += _bad_places(table) if "slot" in names else []
    mistakes += _bad_partitions(table) if "partition" in names else []
    if mistakes:
        raise InputError([f"{rows.name}: {mistake}" for mistake in mistakes])


def _odd_values(table: _Sorted) -> Iterator[tuple[Array, str, str]]:
    """(rows, what is odd about them, what to do) by values that no row may have, whatever the others hold."""
    rows, names = table.rows, table.rows.table.column_names
    score = rows.values("score")
    yield ~np.isfinite(score), "scores are NaN or infinite", "Score those candidates again."
    large = np.isfinite(score) & (np.abs(score) > LARGEST_SCORE)
    yield large, f"scores are beyond {LARGEST_SCORE:g}, where variances overflow", "Rescale the scores."
    numbered = f"Number permutations from 0; {FIRST_STAGE} is the first-stage order."
    yield table.permutation < FIRST_STAGE, f"rows have a permutation below {FIRST_STAGE}", numbered
    for name in (name for name in SHARES if name in names):
        values = rows.values(name)
        outside = ~(np.isnan(values) | ((values >= -SLACK) & (values <= 1 + SLACK)))
        yield outside, f"rows have a {name} outside 0 to 1", "Give a probability."
    if GRADE_COLUMNS[0] in names:
        grades = np.array([rows.values(name) for name in GRADE_COLUMNS])
        empty = np.isnan(grades)
        yield np.abs(grades.sum(axis=0) - 1) > 20 * SLACK, "rows have grades that do not sum to 1", "Give a distribution."
        some = empty.any(axis=0) & ~empty.all(axis=0)
        yield some, f"rows have some of {', '.join(GRADE_COLUMNS)} only", "Give all or none."


def _unpermuted_queries(table: _Sorted) -> list[str]:
    """Queries with nothing but the first-stage order, where others have permutations."""
    is_alone = ~np.logical_or.reduceat(table.permutation != FIRST_STAGE, table.starts)
    if not is_alone.any() or is_alone.all():
        return []
    alone = table.starts[is_alone]
    return [
        f"the first-stage order ({FIRST_STAGE}) is all that {len(alone):,} of the queries have: "
        f"{table.rows.places(alone)}. Score them in other orders too, or leave them out."
    ]


def _unequal_pools(table: _Sorted) -> list[str]:
    """Queries whose permutations do not hold the same candidates."""
    permutations = np.add.reduceat(table.changes(table.permutation), table.starts) + 1
    counts, named = np.bincount(table.query), []
    unequal = table.starts[permutations * table.pool_sizes()[table.starts] != counts].tolist()
    for start in unequal[:MAX_EXAMPLES]:
        rows = table.rows.table.slice(start, counts[table.query[start]])
        there = dict.fromkeys(zip(rows["permutation"].to_pylist(), rows["candidate_id"].to_pylist(), strict=True))
        wanted = product(*(dict.fromkeys(values) for values in zip(*there, strict=True)))
        permutation, candidate = next(pair for pair in wanted if pair not in there)
        named.append(f"query {rows['query_id'][0]} lacks candidate {candidate} in permutation {permutation}")
    if not unequal:
        return []
    more = f" and {len(unequal) - MAX_EXAMPLES:,} more queries" if len(unequal) > MAX_EXAMPLES else ""
    return [f"every permutation must hold the same candidates; {'; '.join(named)}{more}."]


def _bad_places(table: _Sorted) -> list[str]:
    """Every candidate of a query has a place of its own under each permutation, or no place is known."""
    rows = table.rows
    slot, window = rows.values("slot"), rows.values("window")
    both, either = ~(np.isnan(slot) | np.isnan(window)), ~(np.isnan(slot) & np.isnan(window))
    is_placed, sizes = np.logical_or.reduceat(either, table.starts)[table.query], table.pool_sizes()
    lack = "rows lack a slot or a window, which other rows of their query have"
    mistakes = rows.told(is_placed & ~both, lack, "Give both in every row of a query, or in none.")
    if both.any() and slot[both].min() > 0:
        mistakes.append(f"no candidate stands in slot 0; the first slot used is {slot[both].min():g}. Count slots from 0.")
    for name, values in (("slot", slot), ("window", window)):
        outside = f"rows have a {name} below 0, or not below the number of candidates of their query"
        mistakes += rows.told(both & ((values < 0) | (values >= sizes)), outside, f"Count each {name} from 0.")
    order = np.lexsort((slot, window, table.permutation, table.query))
    keys = (values[order] for values in (table.query, table.permutation, window, slot))
    same = np.logical_and.reduce([key[1:] == key[:-1] for key in keys])  # NaN equals nothing
    clash = "rows have the slot and window of another candidate of their permutation"
    return mistakes + rows.told(np.sort(order[1:][same]), clash, "Give each candidate its own place.")


def _bad_partitions(table: _Sorted) -> list[str]:
    """A query's orders are cut in one way, and in one that places can be read by."""
    codes, names = _codes(table.rows, "partition")
    known = get_args(Partition)
    if unknown := {name: np.flatnonzero(codes == i) for i, name in enumerate(names) if name not in ("", *known)}:
        use = f"Use {' or '.join(known)}."
        return [
            f"partition is {_escape_controls(name)[:60]} in {len(rows):,} rows: {table.rows.places(rows)}. {use}"
            for name, rows in list(unknown.items())[:MAX_EXAMPLES]
        ]
    return table.rows.told(table.changes(codes), "rows give a query another partition than its row before")
