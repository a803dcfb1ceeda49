"""``python -m checkpoint_reference_server`` is ``workflow-checkpoint serve``."""

from checkpoint_reference_server.commands import serve

serve(prog_name="python -m checkpoint_reference_server")
