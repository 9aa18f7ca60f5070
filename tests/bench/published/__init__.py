"""Scores the planner on published measurements that lie in a folder outside."""
