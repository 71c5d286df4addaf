"""How figures of Bokeh look, in the colours of pictures; Bokeh is imported when they are made."""

from __future__ import annotations

from typing import Any

from pmtpy.plotting.style import Theme


def dress_figure(drawn: Any, theme: Theme) -> None:
    """Give a figure its colours, and put its legend above it."""
    drawn.update(background_fill_color=theme.ground, border_fill_color=theme.ground, outline_line_color=None)
    if drawn.title is not None:
        drawn.title.text_color = theme.ink
    for axis in (*drawn.xaxis, *drawn.yaxis):
        axis.update(
            axis_label_text_color=theme.ink, major_label_text_color=theme.ink, axis_line_color=theme.ink,
            major_tick_line_color=theme.ink, minor_tick_line_color=None,
        )  # fmt: skip
    drawn.grid.grid_line_color = theme.faint
    if drawn.legend:
        legend = drawn.legend[0]
        legend.update(
            click_policy="hide", orientation="horizontal", padding=0, margin=2, label_text_font_size="9pt",
            background_fill_color=theme.ground, label_text_color=theme.ink, border_line_color=None,
        )  # fmt: skip
        drawn.add_layout(legend, "above")


def control_sheet(theme: Theme) -> Any:
    """Return the style of what is typed into and pressed."""
    from bokeh.models import InlineStyleSheet

    colours = f"background-color: {theme.ground}; color: {theme.ink}"
    return InlineStyleSheet(css=f".bk-input, .bk-btn-default {{ {colours}; border-color: {theme.edge} }}")


def ground_sheet(theme: Theme) -> Any:
    """Return the style of the whole page, for the stylesheets of any part of it."""
    from bokeh.models import GlobalInlineStyleSheet

    return GlobalInlineStyleSheet(
        css=f"body {{ background: {theme.ground}; color: {theme.ink}; font-family: sans-serif }}"
    )
