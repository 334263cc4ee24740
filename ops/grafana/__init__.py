"""The dashboards, written as queries and sentences; ``python -m ops.grafana`` makes their JSON."""
