"""dtk-smi, the command: one file a command or view. It knows only the public names of `dtk`."""
