"""An attribute for each metric, from the catalogue. attributes.pyi says the same to type checkers and editors."""

from __future__ import annotations

from . import metrics


class MetricAttributes:
    """An attribute for each metric; None where it has no value, and Sample.reason() says why."""

    __slots__ = ()


def _attribute(metric: metrics.Metric) -> property:
    """The short way to a value, without a look at its name: programs read attributes in loops."""
    name, number, tier, field = metric.name, metric.number, metrics.TIERS[metric.tier], metric.type

    def read(sample):
        if not sample._tiers & tier:
            try:
                return sample[name]  # explains itself
            except KeyError as error:
                raise AttributeError(error.args[0]) from None
        reading = sample._values[number]
        return None if reading.status else getattr(reading, field)

    def read_bits(sample):
        return sample[name]

    return property(read_bits if field == "bits" else read, doc=f"{metric.unit or metric.type}: {metric.help}")


for _metric in metrics.all():
    setattr(MetricAttributes, _metric.name, _attribute(_metric))
