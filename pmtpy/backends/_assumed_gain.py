"""How far readings may be off whose makers state no accuracy: relative standard uncertainties, as others found them."""

from __future__ import annotations

# Uncalibrated meters on boards were a few percent off: Shalavi et al., "Accurate calibration of power measurements
# from internal power sensors on NVIDIA Jetson devices", 2023, on several modules. No figures are known of service
# processors, of HPE's blades and of POWER9.
METER_U = 0.03
# The steady error of 20 boards against a meter, in the tables beside Yang, Adamek, Armour, arXiv 2312.02741, is 5 %
# root mean square (one that estimates its power from activity left out). It is a gain of each board; NVML's header,
# too, says +/-5 % where it says anything. No figures are known of AMD's and Intel's.
GPU_U = 0.05
