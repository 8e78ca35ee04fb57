"""The rows of gpu-check, for its table and its pages."""

import math

WIDTH = 110  # of the table


def rows_of(result, kind):
    return [row for stage in result["stages"] for row in stage["rows"] if row["type"] == kind]


def geometric_mean(values):
    values = [value for value in values if value and value > 0]
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None


def number(value, form="{:.2f}"):
    return form.format(value) if value is not None else "–"
