"""The settings of the shadow, checked as far as they can be without a server."""

from __future__ import annotations

from stream_dedup.deduplicator import Stages
from stream_dedup.settings import Settings
from stream_dedup.settings_sources import load_shadow
from stream_dedup.stream.decoding import Decoder


def shadow_settings(settings: Settings) -> Settings | None:
    """Return the settings of the shadow, if there is one.

    Raises:
        SettingsError: they cannot be used beside the live ones.
    """
    if settings.shadow is None:
        return None
    shadow = load_shadow(settings, settings.shadow, in_redis=True)
    Decoder(shadow)  # it knows which fields a configuration needs
    Stages(shadow)  # and these which files
    return shadow
