"""The queries' common parts. A value has but its card's uuid: what the card is called is joined to it."""

from __future__ import annotations

from dataclasses import dataclass

PREFIX = "dtk_device_"


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
        """The series of an expression, with `index` and `model`, and further labels of the info metric.

        A partitioned card has no index: its PCI address takes the place of it.
        """
        group = ", ".join(("index", "model", *labels))
        cards = renamed(self.info('index=""'), index="pci_address")
        names = f"({self.devices()} or {cards})"
        return f"{expression}\n* on (instance, uuid) group_left ({group})\n{names}"

    def devices(self) -> str:
        """What can be used: whole cards, and partitions."""
        return self.info('index!=""')

    def cards(self) -> str:
        """The physical cards. What they draw, use and have counts their partitions in."""
        return self.info('partition=""')

    def per_device(self, expression: str) -> str:
        """What a card's sensors say, for each of its devices: a whole card itself, or all its partitions."""
        card = renamed(expression, card="uuid")
        return f"{self.devices()}\n* on (instance, card) group_left ()\nmax by (instance, card) ({card})"

    def allocation(self) -> str:
        """Who has which card.

        Prometheus may give a target a namespace, pod and container: the exporter's are then found as
        exported_namespace and so on. Only what the kubelet tells has a namespace and a pod: those of another row are
        the target's.
        """
        text = renamed(
            self.of("allocation_info"),
            namespace="exported_namespace",
            pod="exported_pod",
            container="exported_container",
        )
        for label in ("namespace", "pod"):
            for other, values in (("source", "slurm|container"), ("pod_uid", ".+")):
                text = f'label_replace({text}, "{label}", "", "{other}", "{values}")'
        return text


def renamed(expression: str, **labels: str) -> str:
    """An expression in which a label has the value of another, where that has one."""
    for new, old in labels.items():
        expression = f'label_replace({expression}, "{new}", "$1", "{old}", "(.+)")'
    return expression
