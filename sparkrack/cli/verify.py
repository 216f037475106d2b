"""placeholder"""
import click
@click.command()
def verify() -> None:
    """x"""
