"""Files: ``write`` (formats and their thread), ``read`` (every recording into one table), and their columns."""
