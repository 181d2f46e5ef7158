"""From a grid file to a plan to a folder of results."""
