"""Storms of many contenders at any target, recorded as histories and judged by the model."""
