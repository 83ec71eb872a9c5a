"""Where a plan's temporaries live: the arena, which nobody reads between two runs.

    persistent  each instance of an executable has an arena of its own, as long as it lives
    graph       the graph allocates the arena in front and frees it behind, so that the driver gives
                the same memory to whatever graph runs next
    shared      all executables on a GPU that say so take turns in one arena, as large as the
                largest needs

`shared` is for executables that never run at once, such as the steps of one model: a run waits,
on the device, until the run before it in the arena is done, whatever the streams and threads they
come from; they are put one behind another in the order in which they are called. Who runs two at
once all the same gets right results, one after the other.
"""
