"""Properties are judged by what they say, not by the clock: a slow machine, or a busy one, is no failure."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")
