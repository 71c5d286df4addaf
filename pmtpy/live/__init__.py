"""Looking while it happens: sensors on a terminal screen. Nothing here owns a device's timing: it reads what came."""
