"""What a command line says beyond the values of its options."""

import typer


def is_given(context: typer.Context, name: str) -> bool:
    """Whether an option was typed, and did not come by default."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"
