"""Every finding: its code, what it means and what to do. docs/doctor.md has the same, and a test compares them.

A word in braces is filled in: {driver} the drivers to think of, {group} the group that owns the device nodes.
"""

from __future__ import annotations

CODES: dict[str, tuple[str, str]] = {
    # ---- driver ----
    "no_card": (
        "PCI shows neither a Hygon nor an AMD card: there is nothing to use.",
        "Ask the bus itself: lspci -nn | grep -Ei '1d94|1002'. A virtual machine needs a card passed through; a "
        "card that was there before may have come loose, or have no power.",
    ),
    "card_without_driver": (
        "No program can use this card, and nobody can read it.",
        "Load the driver: sudo modprobe {driver}; Hygon's was called hydcu before 6.3. sudo dmesg | grep -iE "
        "'hycu|hydcu|amdgpu' says why it did not take the card.",
    ),
    "card_of_other_driver": (
        "The card was given away, as a rule to a virtual machine; programs on this system cannot use it.",
        "If it should be used here, ask who runs virtual machines on this node, and give it back to {driver}.",
    ),
    "module_not_live": (
        "The driver is being loaded or unloaded, or stopped half-way.",
        "Look again in a minute; then sudo dmesg says where it stands. Hygon's is restarted by: sudo systemctl "
        "restart hymgr.",
    ),
    # ---- cards ----
    "cards_unknown": (
        "The kernel did not even say which cards there are: something hangs in it.",
        "sudo dmesg says where. A longer --deadline tells slow from stuck; what is stuck needs a reboot of the node.",
    ),
    "not_examined": (
        "Driver, cards and device nodes were not looked at: that there is no other finding says nothing.",
        "Try a longer --deadline where it was late; else see what keeps a process from running here: memory, ulimit "
        "-u and -n, the Python that dtk is installed in.",
    ),
    "card_without_kfd": (
        "The driver has the card, but compute does not: HIP and OpenCL programs do not see it. It is lost to them.",
        "sudo dmesg | grep -iE 'kfd|{driver}' says why; a reset of the card, or a reboot of the node, brings it back.",
    ),
    "partition_missing": (
        "A part of the card is lost to HIP and OpenCL: its mode makes more devices of it than compute has.",
        "sudo dmesg | grep -iE 'kfd|{driver}' says why; set the mode again when no job is on the card, or reset it.",
    ),
    "kfd_missing": (
        "The driver runs without its compute part (KFD): no HIP or OpenCL program can run.",
        "sudo dmesg | grep -i kfd says why; the kernel or driver may be built without it.",
    ),
    "kfd_denied": (
        "The device cgroup keeps these cards from this container or job; that is right where only some were given "
        "to it.",
        "If they should be usable here, start the container with their /dev/dri/renderD*, or with all: --device "
        "/dev/dri.",
    ),
    "card_without_pci": (
        "The card fell off the PCI bus after the driver had started; programs that use it hang or fail.",
        "Stop the jobs on it and reboot the node; if it happens again, look at its power, its seat and its "
        "temperature.",
    ),
    "card_without_render": (
        "There is no render node for this card, and a program cannot open it.",
        "sudo dmesg | grep -iE 'drm|{driver}' says why; in a container the card may not have been given to it.",
    ),
    # ---- device nodes ----
    "dev_kfd_missing": (
        "No HIP or OpenCL program can start: they all open /dev/kfd.",
        "A container needs --device /dev/kfd --device /dev/dri; elsewhere sudo dmesg | grep -i kfd says why it is "
        "missing.",
    ),
    "dev_kfd_denied": (
        "HIP and OpenCL programs of this user see no card; what dtk-smi shows is readable for everybody.",
        "Join the group, then log in again: sudo usermod -aG {group} $USER. For a container: --group-add {group}.",
    ),
    "render_missing": (
        "No program can open a card: that needs /dev/dri/renderD*.",
        "A container needs --device /dev/dri; elsewhere sudo dmesg | grep -i drm says why there is none.",
    ),
    "render_denied": (
        "HIP and OpenCL programs of this user do not see these cards.",
        "Join the group, then log in again: sudo usermod -aG {group} $USER. For a container: --group-add {group}.",
    ),
    "node_of_root": (
        "The device nodes belong to root alone: programs of other users see no card.",
        "Until the next boot: sudo chgrp {group} /dev/kfd /dev/dri/renderD*; sudo chmod g+rw the same. A udev rule "
        "keeps it so.",
    ),
    "group_not_active": (
        "This user is a member of the group since before this shell was started, or the shell was not told.",
        "Log out and in again, or: newgrp {group}.",
    ),
    # ---- health ----
    "card_stale": (
        "A read of this card hangs in the kernel: the card or its firmware is stuck, and programs on it are too.",
        "sudo dmesg may say why. Use the other cards; this one needs a reset, or a reboot of the node.",
    ),
    "card_gone": (
        "The card left while it was looked at: it was reset, unplugged, or fell off the bus.",
        "Look again; if it stays away, sudo dmesg | grep -iE 'pci|{driver}' says why.",
    ),
    "card_denied": (
        "This user may not read the card's files, which everybody may on an ordinary system.",
        "Ask who set up this container or its security policy; as root it should work.",
    ),
    "card_failed": (
        "The driver answers every question with an error, or with what cannot be true.",
        "sudo dmesg | grep -i {driver} says why; the card needs a reset, or a reboot of the node.",
    ),
    "reading_failed": (
        "The driver has these values, but reading them failed or gave what cannot be true.",
        "dtk-smi show {card} says what was wrong with each; if it stays so, tell who makes the driver.",
    ),
    "gpu_metrics_unknown": (
        "The driver is newer than this dtk, which reads what it knows from other files; some values may be missing.",
        "Update dtk-smi; report the revision if the newest does not know it either.",
    ),
    "gpu_metrics_damaged": (
        "The firmware's table of readings is broken; other files were used, and some values may be missing.",
        "Look again; if it stays so, sudo dmesg | grep -i {driver}, and reset the card when no job is on it.",
    ),
    "ecc_uncorrectable": (
        "Memory lost data since the driver was loaded: jobs that ran on this card may have failed or be wrong.",
        "Stop giving jobs to it; reset it. If the count rises again, have the card replaced.",
    ),
    "pages_pending": (
        "Bad memory pages are still in use; the card takes them out of use at its next reset.",
        "Reset the card when no job is on it.",
    ),
    "pages_retired": (
        "The card has taken bad memory pages out of use. It works, but its memory ages.",
        "Keep an eye on it: a count that rises is a reason to have the card replaced.",
    ),
    "too_hot": (
        "A sensor has reached its critical temperature: the card slows down, and shuts down if it gets hotter.",
        "Look at fans, air flow and the room; lower the power limit until that is mended.",
    ),
    "memory_held": (
        "Much memory is in use, nothing runs, and no process that can be seen here has it: a hang, a process that "
        "ended badly, or one of another container.",
        "As root, dtk-smi ps --format tree shows all processes; sudo fuser -v /dev/kfd /dev/dri/renderD* who has "
        "cards open. If nobody has, reset the card.",
    ),
    "process_ended": (
        "The process is dead, and the driver still keeps what it used: memory that nobody else can have.",
        "End what is left of its parent and children; if it stays, only a reset of the card or a reboot frees it.",
    ),
    # ---- links ----
    "link_narrow": (
        "Copies to and from the card are as much slower: bad contact, a riser, a slot with fewer lanes, or a bad card.",
        "sudo lspci -vv -s {card} shows LnkCap and LnkSta; seat the card anew, try another slot.",
    ),
    "link_slow": (
        "The card works, and its link runs below what it can: copies are as much slower.",
        "sudo lspci -vv -s {card} shows LnkCap and LnkSta of card and slot; look at the BIOS's PCIe speed, seat it "
        "anew.",
    ),
    "numa_unknown": (
        "Nobody can tell which processor socket is near the card; programs may run on the far one.",
        "Update the BIOS, or switch on NUMA nodes per socket in it; until then bind by hand (numactl).",
    ),
    # ---- software ----
    "library_override": (
        "The variable names where a library is, and there is none: dtk goes on to the next place, other programs that "
        "obey it find no card.",
        "Unset {variable}, or name the library in it, or the directory that holds it.",
    ),
    "library_shadowed": (
        "Programs get this librocm_smi64 in place of the driver's. Two generations of it share a name and differ in"
        " their structures: wrong numbers, or crashes. dtk reads the kernel and is not concerned.",
        "Take that directory out of LD_LIBRARY_PATH, or put {directory} before it.",
    ),
    "library_failed": (
        "It does not start on this machine: hy-smi, rocm-smi and what else uses it does not work. dtk reads the "
        "files instead.",
        "Install the version that belongs to the driver; read what it printed; a lock that an ended process left "
        "is in /dev/shm/rocm_smi*: end the other users of the library and delete it.",
    ),
    "library_aborted": (
        "It crashes whoever loads it: hy-smi, rocm-smi and monitoring that use it. dtk asked it in a process of "
        "its own and goes on without it.",
        "Install the version that belongs to the driver, and report it to the vendor with what it printed.",
    ),
    "library_silent": (
        "Whoever loads it hangs: mostly it waits for a lock in /dev/shm that an ended process left, or for a card "
        "that does not answer.",
        "End the other users of the library and delete /dev/shm/rocm_smi*; if it still hangs, sudo dmesg says "
        "which card does not answer.",
    ),
    "library_lists_fewer": (
        "Tools that use it do not show the other cards.",
        "Install the version that belongs to the driver: an older one does not know newer cards.",
    ),
    "compiler_broken": (
        "HIP programs cannot be compiled with it.",
        "Run it by hand to see more; install the toolkit again, or source its env.sh.",
    ),
    "target_unknown": (
        "Code for this card cannot be compiled with it.",
        "Use a compiler that does: for a Hygon card that of Hygon's DTK (source /opt/dtk/env.sh), for a new AMD "
        "card that of a newer ROCm.",
    ),
    # ---- environment ----
    "visibility_hides_all": (
        "A HIP or OpenCL program that obeys it and is started from here sees no card.",
        "Unset {variable}, or name cards in it: dtk-smi map shows their numbers.",
    ),
    "visibility_bad_entry": (
        "Runtimes stop at the first entry that they do not understand: cards named after it are hidden.",
        "Correct {variable}: indices from 0, comma between; dtk-smi map shows which there are.",
    ),
    "visibility_twice": (
        "Both filter: the second counts among the cards that the first has left, so its numbers mean other cards.",
        "Set one of them, or give both the same uuids.",
    ),
    "gfx_override": (
        "Runtimes take the card for another chip: wrong code may run on it, and fail or compute wrongly.",
        "Unset HSA_OVERRIDE_GFX_VERSION; build programs for the card's own target.",
    ),
    "variable_misspelt": (
        "Nothing reads a variable of this name: what it should do does not happen.",
        "Set {right} in its place.",
    ),
    "variable_unknown": (
        "dtk reads no variable of this name.",
        "Unset it; man dtk-smi lists those that there are.",
    ),
    "path_missing": (
        "Programs that obey the variable look where there is nothing.",
        "Unset {variable}, or name the directory where the toolkit is.",
    ),
    # ---- cost ----
    "source_slow": (
        "Each look at this card takes that long; monitors that look every second load the card and the node.",
        "Look less often (dtk-smi -l 10); sudo dmesg may say what the driver waits for.",
    ),
}
