"""money: operators, functions and casts over its text form. `comparison` compares values by its sort key."""

from __future__ import annotations

from headgate.expression.functions import money, ordering
from headgate.expression.implementation.implementation import Table
from headgate.expression.spark.value import DIGITS, FLOAT8, INT4, TEXT
from headgate.expression.spark.vectorised import scalar
from headgate.types import registry

IMPLEMENTATIONS: Table = {
    "cash_pl": scalar(money.added, TEXT, prefix=(1,)),
    "cash_mi": scalar(money.added, TEXT, prefix=(-1,)),
    "cash_div_cash": scalar(money.ratio, FLOAT8),
    "cash_cmp": scalar(ordering.compared, INT4, prefix=(registry.MONEY,), raises=False),
    "cashlarger": scalar(ordering.extreme, TEXT, prefix=(registry.MONEY, True), raises=False),
    "cashsmaller": scalar(ordering.extreme, TEXT, prefix=(registry.MONEY, False), raises=False),
    "cash_words": scalar(money.words, TEXT, raises=False),
    "cash_numeric": scalar(money.to_numeric, DIGITS, raises=False),
    "numeric_cash": scalar(money.of_numeric, TEXT),
    **{f"int{size}_cash": scalar(money.of_integer, TEXT) for size in (4, 8)},
    **{f"cash_mul_{kind}": scalar(money.times, TEXT) for kind in ("flt4", "flt8")},
    **{f"cash_div_{kind}": scalar(money.over, TEXT) for kind in ("flt4", "flt8")},
    **{f"{kind}_mul_cash": scalar(money.times, TEXT, flipped=True) for kind in ("flt4", "flt8")},
    **{f"cash_mul_int{size}": scalar(money.times_whole, TEXT) for size in (2, 4, 8)},
    **{f"cash_div_int{size}": scalar(money.over_whole, TEXT) for size in (2, 4, 8)},
    **{f"int{size}_mul_cash": scalar(money.times_whole, TEXT, flipped=True) for size in (2, 4, 8)},
}
