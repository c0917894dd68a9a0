"""The page of settings is what the class says."""

from __future__ import annotations

from tests.contract.settings_page import PAGE, render

from tollbar.settings import Settings


def test_the_page_of_settings_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == render(), "write it anew: make docs"


def test_every_setting_has_a_sentence() -> None:
    assert [name for name, field in Settings.model_fields.items() if not (field.description or "").endswith(".")] == []
