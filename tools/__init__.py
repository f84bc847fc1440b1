"""The command line, the demonstration mesh, benchmarks and scenario files."""
