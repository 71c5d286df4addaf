"""The bench: procedures and loads per device, the profiles and reports that they produced.

What can be computed from arrays is in ``pmtpy.analysis``; here is what a person does with a device: which load, which
reference meter, which sweep. These scripts import ``pmtpy``, never the reverse.
"""
