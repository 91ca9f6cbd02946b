"""`BackupAndRestore` in the middle of an epoch, also after SIGTERM: where the data, the draws and the callbacks were."""
