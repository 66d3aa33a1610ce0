"""The roles of the columns of a table."""

from collections.abc import Sequence
from dataclasses import dataclass

from tsforecast.wording import option

# Roles of the columns of other tables once they are in long form; no header of a file is called so.
WIDE_ITEM, WIDE_TARGET = "(series)", "(value)"
ACROSS_TIME, ACROSS_TARGET = "(time)", "(value)"


@dataclass(frozen=True)
class Columns:
    """Roles of the columns of a table. Columns without a role are ignored; letter case does not matter.

    Attributes:
        item: Name of the series, or several columns that name it together (joined by "/"). None: one of `ITEM_NAMES`,
            or the whole table is one series; further columns join where it does not tell the series apart.
        timestamp: One column, or several that are joined by blanks (year and month, date and time). None: one of
            `TIMESTAMP_NAMES`, units of time (`Month`), or a first column of dates.
        target: One column, or several for a vector at each step. None: one of `TARGET_NAMES`, or the only column left.
        covariates: Numbers known ahead of time (prices, holidays), which become `feat_dynamic_real`; "holiday=easter"
            is 1 where the column `holiday` says so, else 0.
        past_covariates: Numbers whose past alone is known (weather as observed, visitors), which become
            `past_feat_dynamic_real`: models of several targets forecast them beside the target.
        static_categories: Text or numbers constant within a series, which become codes in `feat_static_cat`.
        static_reals: Numbers constant within a series, which become `feat_static_real`.
        timestamp_format: As `strptime` takes it, e.g. "%d/%m/%Y"; None: ISO 8601 or whatever is unambiguous.
        decimal: Decimal sign of numbers that are text; None: a point, or a comma where cells can not be read otherwise.
        wide: The table has one column for each series, named in its header: all but the time stamps, or those of
            `target`. It is found by itself where these names are numbered, and where dates stand across the top.
        holidays: Code of a country whose public holidays become covariates, "US" or "AU-VIC"; the effects of
            `with_holidays` may follow, which are chosen if they do not.
        ahead: Whether numbers and categories that go on behind the last target of every series are covariates, where
            none is named.
    """

    item: str | Sequence[str] | None = None
    timestamp: str | Sequence[str] | None = None
    target: str | Sequence[str] | None = None
    covariates: Sequence[str] = ()
    past_covariates: Sequence[str] = ()
    static_categories: Sequence[str] = ()
    static_reals: Sequence[str] = ()
    timestamp_format: str | None = None
    decimal: str | None = None
    wide: bool = False
    holidays: str | Sequence[str] | None = None
    ahead: bool = False

    @property
    def items(self) -> list[str]:
        """The item columns as a list."""
        return [self.item] if isinstance(self.item, str) else list(self.item or ())

    @property
    def stamps(self) -> list[str]:
        """The time stamp columns as a list."""
        return [self.timestamp] if isinstance(self.timestamp, str) else list(self.timestamp or ())

    @property
    def targets(self) -> list[str]:
        """The target columns as a list."""
        return [self.target] if isinstance(self.target, str) else list(self.target or ())

    @property
    def numbers(self) -> list[str]:
        """All columns that hold numbers."""
        return [*self.targets, *self.covariates, *self.past_covariates, *self.static_reals]

    def names_ahead(self, count: int) -> list[str]:
        """Return the names of covariates known ahead, holidays last; numbers where there are not so many of them."""
        names = [*self.covariates, *([] if isinstance(self.holidays, str) else (self.holidays or ())[1:])]
        return names if len(names) == count else [f"covariate {number}" for number in range(count)]


def column_option(name: str, value: str | bool | Sequence[str] | None = None) -> str:
    """An option of `Columns` as the reader of a message gives it."""
    return option(name, value, "columns=Columns")
