/* The states of the loader (engine/protocol.c): two readers, a worker and the caller who help, pauses, a read of no
 * run, a read that fails, rows that a step of the run stores and its last load reads back, a stop.
 * spin -a loader.pml && cc -o pan pan.c && ./pan -a -f; deadlocks: cc -DNOCLAIM */

#define READERS 2
#define LOADS 2 /* of a run; the last brings rows that a step of it stores, which waits for the others */

mtype = { works, draining, paused, failed };   /* fx_engine.loader */
mtype = { go, pause, stop };                    /* fx_engine.command */

mtype loader = paused;
mtype command = go;
byte resting = 0, gone = 0, begun = 0, retired = 0;
byte in_flight = 0; /* of readers */
byte helpers = 0;
byte faults = 1;      /* reads that may still fail */
bool has_failed = false, is_asked = false, mutex = false;
byte restarts = 0, seen = 0;
bool is_stored = false; /* the step that stores rows is done, in this run */
byte turn = 0, file = 0; /* the run, and the one whose rows the spill file has */

#define LOCK atomic { !mutex -> mutex = true }
#define UNLOCK mutex = false
#define RESTS (loader == paused || loader == failed)
#define WANTED (is_stored -> LOADS : LOADS - 1) /* loads that the caller's next step, or the run's end, waits for */
#define MAY_BEGIN (begun < LOADS && (begun < LOADS - 1 || is_stored))

inline settle() {
    assert(in_flight == 0 && helpers == 0); /* nobody reads while the loader rests; only the caller ends a rest */
    retired = begun;
    if
    :: has_failed -> loader = failed
    :: else -> loader = paused
    fi;
    has_failed = false
}

/* One request that has begun arrives: it is retired, or fails. */
inline arrive() {
    if
    :: command == go && !has_failed && retired < begun ->
       retired++;
       assert(retired < LOADS || file == turn) /* what was read back is what this run stored */
    :: faults > 0 && command == go && !has_failed -> faults--; has_failed = true; loader = draining
    :: command != go || has_failed || retired >= begun -> skip
    fi
}

active [READERS] proctype reader() {
    do
    :: LOCK;
       if
       :: command == stop -> break
       :: command != stop && is_asked ->
          is_asked = false;
          in_flight++; UNLOCK; LOCK; in_flight--; /* read_request of the pinned one */
          UNLOCK
       :: command != stop && !is_asked && loader != works ->
          resting++;
          if
          :: resting == READERS && loader == draining && helpers == 0 -> settle()
          :: else -> skip
          fi;
          UNLOCK;
          (command == stop || loader == works || is_asked);
          LOCK; resting--; UNLOCK
       :: command == pause && !is_asked && loader == works -> loader = draining; UNLOCK
       :: command == go && !is_asked && loader == works && MAY_BEGIN ->
          begun++; in_flight++; UNLOCK; LOCK; in_flight--; arrive(); UNLOCK
       :: command == go && !is_asked && loader == works && !MAY_BEGIN ->
          UNLOCK;
          (command != go || loader != works || MAY_BEGIN)
       fi
    od;
    gone++;
    UNLOCK
}

/* Help: reads the next request if it may begin. */
inline help(has_read) {
    LOCK;
    has_read = false;
    if
    :: loader == works && MAY_BEGIN ->
       begun++; helpers++; has_read = true; UNLOCK; LOCK; arrive();
       helpers--;
       if
       :: loader == draining && resting == READERS && helpers == 0 -> settle()
       :: else -> skip
       fi
    :: else -> skip
    fi;
    UNLOCK
}

active proctype worker() {
    bool has_read;
    do
    :: loader == works && MAY_BEGIN -> help(has_read)
    :: command == stop -> break
    od
}

inline rest() {
    command = pause;
    (RESTS)
}

active proctype caller() {
    bool has_read;
    do
    :: restarts < 3 ->
       restarts++;
       if
       :: !RESTS || command != go || restarts > 1 -> rest()
       :: else -> skip
       fi;
       assert(in_flight == 0 && helpers == 0 && resting <= READERS); /* re-budget: the arena may move */
       if
       :: LOCK; loader = draining; is_asked = true; UNLOCK; rest() /* a pinned weight */
       :: skip
       fi;
       assert(in_flight == 0 && helpers == 0);
       begun = 0; retired = 0; is_stored = false; turn++;
       command = go;
       loader = works;
       do
       :: retired == LOADS || RESTS -> break
       :: retired == WANTED && !is_stored && !RESTS -> file = turn; is_stored = true
       :: retired < WANTED && !RESTS ->
          seen = retired;
          help(has_read);
          if
          :: has_read -> skip
          :: else -> (retired > seen || retired >= WANTED || RESTS)
          fi
       :: break /* cancelled */
       od
    :: break
    od;
    command = stop;
    (gone == READERS);
    assert(in_flight == 0)
}

/* Whoever asks the loader to rest sees it rest. */
ltl rests { [] ((command == pause) -> <> (command != pause || RESTS)) }
ltl ends { <> (gone == READERS) }
