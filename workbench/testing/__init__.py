"""Public fakes for tests of code that uses workbench."""
