"""Documents, figures and the page."""
