"""A job on many machines, and machines that are watched for ever: MPI, files of nodes, data sets, exporters."""
