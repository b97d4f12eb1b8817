"""An attribute for each metric, from the catalogue. attributes.pyi says the same to type checkers and editors."""

from __future__ import annotations

from . import metrics


class MetricAttributes:
    """An attribute for each metric; None where it has no value, and Sample.reason() says why."""

    __slots__ = ()


def _attribute(metric: metrics.Metric) -> property:
    name = metric.name

    def read(sample):
        try:
            return sample[name]
        except KeyError as error:
            raise AttributeError(error.args[0]) from None

    return property(read, doc=f"{metric.unit or metric.type}: {metric.help}")


for _metric in metrics.all():
    setattr(MetricAttributes, _metric.name, _attribute(_metric))
