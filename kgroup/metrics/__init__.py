"""Metrics and traces of groups, for Prometheus and OpenTelemetry.

``table`` lists the metrics, and ``measuring`` computes them, without a library for metrics.
``prometheus`` needs the extra ``kgroup[prometheus]``, and ``opentelemetry`` needs
``kgroup[opentelemetry]``; nothing else of kgroup imports them. ``dashboard`` is a dashboard for
Grafana. docs/metrics.md shows how to use them.
"""
