"""The far side of every wire: emulated devices, all watching one load whose energy is known in closed form.

Shipped with the package, because users rehearse with it, the docs run on it, and authors of backends test with it.
Nothing of the core imports it; the registry loads it by name when a device called ``virtual`` is asked for.

Each ``open_virtual`` opens the real backend on its far side: ``device`` is None or "virtual" where nothing else is
said, and ``load`` is that of the emulated world, where None joins the one there is.
"""

from pmtpy.emulators._tree import Tree
from pmtpy.emulators._virtual_source import VirtualSource, check_device, open_on
from pmtpy.emulators.world import World, shared_world, work

__all__ = ["Tree", "VirtualSource", "World", "check_device", "open_on", "shared_world", "work"]
