"""The far side of every wire: emulated devices, all watching one load whose energy is known in closed form.

Shipped with the package, because users rehearse with it, the docs run on it, and authors of backends test with it.
Nothing of the core imports it; the registry loads it by name when a device called ``virtual`` is asked for.
"""
