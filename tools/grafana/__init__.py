"""What the Grafana dashboards are made of."""
