"""The queries' common parts. A value has but its card's uuid: what the card is called is joined to it."""

from __future__ import annotations

from dataclasses import dataclass

PREFIX = "dtk_device_"

# What Prometheus may have labelled its target with as well; the exporter's label is then exported_<label>.
TARGET_LABELS = ("namespace", "pod", "container")


@dataclass(frozen=True)
class Scope:
    """Which series a dashboard is about.

    instance: matcher of the exporters.
    uuid: matcher of the cards, "" for all of them.
    """

    instance: str
    uuid: str = ""

    def own(self, family: str, *matchers: str) -> str:
        """A family that has no card, such as those of the exporter itself."""
        return f"{family}{{{', '.join((self.instance, *matchers))}}}"

    def of(self, family: str, *matchers: str) -> str:
        """A family of cards, by its name without the prefix."""
        return self.by_card(PREFIX + family, *matchers)

    def by_card(self, family: str, *matchers: str) -> str:
        """A family of cards, by its whole name."""
        return self.own(family, *filter(None, (self.uuid,)), *matchers)

    def info(self, *matchers: str) -> str:
        """What the devices are, chosen or not."""
        return self.own(PREFIX + "info", *matchers)

    def rate(self, family: str, *matchers: str, window: str = "$__rate_interval") -> str:
        """How fast a counter of cards grows."""
        return f"rate({self.of(family, *matchers)}[{window}])"

    def increase(self, family: str, *matchers: str, window: str = "$__rate_interval") -> str:
        """By how much a counter of cards grew."""
        return f"increase({self.of(family, *matchers)}[{window}])"

    def named(self, expression: str, *labels: str) -> str:
        """The series of an expression, with `index` and `model`, and further labels of the info metric."""
        group = ", ".join(("index", "model", *labels))
        return f"{expression}\n* on (instance, uuid) group_left ({group})\n{self.names(*labels)}"

    def names(self, *labels: str) -> str:
        """A series for each uuid that a value may have.

        The sensors of a partitioned card stand on the card, which is no device: its partitions say what it is, and its
        PCI address takes the place of the index.
        """
        group = ", ".join(("instance", "uuid", "index", "model", *labels))
        card = renamed(self.info('partition!=""'), index="pci_address", uuid="card")
        return f"(\n  {self.info()}\n  or on (instance, uuid)\n  max by ({group}) ({card})\n)"

    def cards(self) -> str:
        """A series for each physical card. With `and on (instance, uuid)`, sums count no partition twice."""
        return f"group by (instance, uuid) ({renamed(self.info(), uuid='card')})"

    def per_card(self, expression: str) -> str:
        """The series of an expression that stand on a physical card."""
        return f"{expression} and on (instance, uuid) {self.cards()}"

    def per_device(self, expression: str) -> str:
        """What a card's sensors say, for each of its devices: a whole card itself, or all its partitions."""
        card = renamed(expression, card="uuid")
        return f"{self.of('info')}\n* on (instance, card) group_left ()\nmax by (instance, card) ({card})"

    def allocation(self) -> str:
        """Who has which card, with `work` for the job."""
        return workload(self.of("allocation_info"))


def renamed(expression: str, **labels: str) -> str:
    """An expression in which a label has the value of another, where that has one."""
    for new, old in labels.items():
        expression = f'label_replace({expression}, "{new}", "$1", "{old}", "(.+)")'
    return expression


def workload(expression: str) -> str:
    """Labels of the workload, whatever Prometheus labelled its target with.

    `job` always collides, so that the exporter's is found as exported_job; here it is called `work`.
    """
    return renamed(expression, work="exported_job", **{label: f"exported_{label}" for label in TARGET_LABELS})
