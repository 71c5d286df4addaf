"""Looking while it happens, on a terminal and in a browser. Nothing here owns a device's timing: it reads what came."""
