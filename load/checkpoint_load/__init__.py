"""Load storms judged by the model. Empty until the storms land; ``check`` has the first race."""
