"""Workbench: plan, launch, work on and watch distributed training from a notebook.

This front door is imported by no module inside. Each function imports what it needs
when it is called, so that `import workbench as wb` and Tab stay instant.
"""
