"""Serial lines, for every instrument behind one: ports, a relay process that reads them, transports, what happened."""
