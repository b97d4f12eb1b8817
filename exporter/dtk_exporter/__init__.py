"""dtk-exporter: the cards of this machine for Prometheus."""
