"""The workbench command."""
