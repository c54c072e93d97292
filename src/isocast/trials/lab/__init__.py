"""The lab: a world of network namespaces on one machine, with delay, jitter and loss between cities.

The kernel's own emulation is missing on many machines, so a process of our own forwards every frame between the
sites' TAP devices. It needs /dev/net/tun, and either root or user namespaces; nothing else. It leaves no process,
namespace or device behind, and changes nothing of the machine's own network.
"""

from isocast.trials.lab.lab import Lab
from isocast.trials.lab.report import LabReport
from isocast.trials.lab.world import LabWorld, LinkChange

__all__ = ["Lab", "LabReport", "LabWorld", "LinkChange"]
