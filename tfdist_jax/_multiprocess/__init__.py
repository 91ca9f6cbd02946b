"""Arrays, data and programs of several processes: given by the first one, collected, shared out, agreed on."""
