"""Telemetry: metrics of Prometheus, traces of OpenTelemetry. Each library is imported by the file that needs it."""
