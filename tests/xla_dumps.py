"""Small programs as XLA would dump them, written by hand: each shows one thing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Written:
    """The texts of a dump, '' for a file that is not there."""

    optimized: str
    assignment: str
    sequence: str = ""
    before: str = ""

    def into(self, folder: Path, stem: str = "module_0001.jit_f.sm_9.0a_gpu_") -> Path:
        """Write the files under the names that XLA gives them."""
        folder.mkdir(exist_ok=True)
        number = stem.split(".sm_")[0]
        for name, text in (
            (f"{stem}after_optimizations.txt", self.optimized),
            (f"{stem}after_optimizations-buffer-assignment.txt", self.assignment),
            (f"{number}.thunk_sequence_after_thunk_passes.txt", self.sequence),
            (f"{number}.before_optimizations.txt", self.before),
        ):
            if text:
                (folder / name).write_text(text)
        return folder


# Two chains that share one temporary, so that the second waits for the first.
CHAINS = Written(
    optimized="""\
HloModule jit_f, is_scheduled=true

ENTRY %main (x: f32[64]) -> (f32[64], f32[64]) {
  %x = f32[64]{0} parameter(0)
  %a = f32[64]{0} exponential(%x)
  %b = f32[64]{0} negate(%a)
  %c = f32[64]{0} sine(%x)
  %d = f32[64]{0} cosine(%c)
  ROOT %t = (f32[64]{0}, f32[64]{0}) tuple(%b, %d)
}
""",
    assignment="""\
BufferAssignment:
allocation 0: size 256, parameter 0, shape |f32[64]| at ShapeIndex {}:
 value: <0 x @0> (size=256,offset=0): f32[64]{0}
allocation 1: size 256, maybe-live-out:
 value: <2 b @0> (size=256,offset=0): f32[64]{0}
allocation 2: size 256, maybe-live-out:
 value: <4 d @0> (size=256,offset=0): f32[64]{0}
allocation 3: size 16, output shape is |(f32[64], f32[64])|, maybe-live-out:
 value: <5 t{} @0> (size=16,offset=0): (f32[64]{0}, f32[64]{0})
allocation 4: size 256, preallocated-temp:
 value: <1 a @0> (size=256,offset=0): f32[64]{0}
 value: <3 c @0> (size=256,offset=0): f32[64]{0}
""",
    sequence="""\
000: kCommandBuffer [source | sink]
    001: kCustomKernel [source       | next=002 (1)] wrapped_exponential grid: [1, 1, 1]
    002: kCustomKernel [prev=001 (1) | next=003 (1)] wrapped_negate grid: [1, 1, 1]
    003: kCustomKernel [prev=002 (1) | next=004 (1)] wrapped_sine grid: [1, 1, 1]
    004: kCustomKernel [prev=003 (1) | sink        ] wrapped_cosine grid: [1, 1, 1]
""",
    before="""\
HloModule jit_f

ENTRY main {
  x = f32[64] parameter(0)
  a = f32[64] exponential(x)
  b = f32[64] negate(a)
  c = f32[64] sine(x)
  d = f32[64] cosine(c)
  ROOT t = (f32[64], f32[64]) tuple(b, d)
}
""",
)
CHAINS_LOG = """\
I0000 command_executor.cc:1] Execution graph: ExecutionGraph: 4 nodes, #source_nodes=1
node 0 (priority=3): in=[] out=[NodeEdge {kind: execution, id: 1}]
node 1 (priority=2): in=[NodeEdge {kind: execution, id: 0}] out=[NodeEdge {kind: execution, id: 2}]
node 2 (priority=1): in=[NodeEdge {kind: execution, id: 1}] out=[NodeEdge {kind: execution, id: 3}]
node 3 (priority=0): in=[NodeEdge {kind: execution, id: 2}] out=[]
"""

# A loop that copies the row of its counter, by a dynamic-slice fusion, and counts.
LOOP = Written(
    optimized="""\
HloModule jit_loop, is_scheduled=true

%slicing (rows: f32[8,4], at: s32[]) -> f32[1,4] {
  %rows = f32[8,4]{1,0} parameter(0)
  %at = s32[] parameter(1)
  %zero = s32[] constant(0)
  %row = f32[1,4]{1,0} dynamic-slice(%rows, %at, %zero), dynamic_slice_sizes={1,4}
  ROOT %row_copy = f32[1,4]{1,0} copy(%row)
}

%body (s: (s32[], f32[8,4], f32[1,4])) -> (s32[], f32[8,4], f32[1,4]) {
  %s = (s32[], f32[8,4]{1,0}, f32[1,4]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%s), index=0
  %held = f32[8,4]{1,0} get-tuple-element(%s), index=1
  %take = f32[1,4]{1,0} fusion(%held, %i), kind=kCustom, calls=%slicing, \
    backend_config={"fusion_backend_config":{"kind":"__custom_fusion",\
    "custom_fusion_config":{"name":"dynamic_slice_fusion"}}}
  %one = s32[] constant(1)
  %next = s32[] add(%i, %one), control-predecessors={%take}
  ROOT %out = (s32[], f32[8,4]{1,0}, f32[1,4]{1,0}) tuple(%next, %held, %take)
}

%condition (c: (s32[], f32[8,4], f32[1,4])) -> pred[] {
  %c = (s32[], f32[8,4]{1,0}, f32[1,4]{1,0}) parameter(0)
  %ci = s32[] get-tuple-element(%c), index=0
  %end = s32[] constant(8)
  ROOT %less = pred[] compare(%ci, %end), direction=LT
}

ENTRY %main (x: f32[8,4]) -> f32[1,4] {
  %x = f32[8,4]{1,0} parameter(0)
  %start = s32[] constant(0)
  %i0 = s32[] copy(%start)
  %row0 = f32[1,4]{1,0} iota(), iota_dimension=1
  %init = (s32[], f32[8,4]{1,0}, f32[1,4]{1,0}) tuple(%i0, %x, %row0)
  %loop = (s32[], f32[8,4]{1,0}, f32[1,4]{1,0}) while(%init), condition=%condition, body=%body
  ROOT %last = f32[1,4]{1,0} get-tuple-element(%loop), index=2
}
""",
    assignment="""\
BufferAssignment:
allocation 0: size 128, page 0, parameter 0, shape |f32[8,4]| at ShapeIndex {}:
 value: <0 x @0> (size=128,offset=0): f32[8,4]{1,0}
allocation 1: size 16, page 0, maybe-live-out:
 value: <1 row0 @0> (size=16,offset=0): f32[1,4]{1,0}
 value: <2 s{2} (phi) @0> (size=16,offset=0): f32[1,4]{1,0}
 value: <3 c{2} (phi) @0> (size=16,offset=0): f32[1,4]{1,0}
 value: <4 take @0> (size=16,offset=0): f32[1,4]{1,0}
 value: <5 loop{2} (phi) @0> (size=16,offset=0): f32[1,4]{1,0}
allocation 2: size 4, page 0, constant:
 value: <6 start @0> (size=4,offset=0): s32[]
allocation 3: size 4, page 0, constant:
 value: <7 one @0> (size=4,offset=0): s32[]
allocation 4: size 4, page 0, constant:
 value: <8 end @0> (size=4,offset=0): s32[]
allocation 5: size 132, page 0, preallocated-temp:
 value: <9 i0 @0> (size=4,offset=128): s32[]
 value: <10 s{0} (phi) @0> (size=4,offset=128): s32[]
 value: <11 c{0} (phi) @0> (size=4,offset=128): s32[]
 value: <12 next @0> (size=4,offset=128): s32[]
 value: <13 loop{0} (phi) @0> (size=4,offset=128): s32[]
 value: <14 less @0> (size=1,offset=0): pred[]
""",
    sequence="""\
000: kCommandBuffer [source       | next=003 (1)]
    001: kCopy         [source | sink] kCopy
    002: kCustomKernel [source | sink] wrapped_iota grid: [1, 1, 1]
003: kWhile         [prev=000 (1) | sink        ]
condition:
    004: kCustomKernel [source | sink] wrapped_compare grid: [1, 1, 1]
  body:
    000: kCommandBuffer [source | sink]
        005: kDynamicSliceFusion [source | sink] params=1, results=1
            006: kCopy [source | sink] kCopy
        007: kCustomKernel [source | sink] wrapped_add grid: [1, 1, 1]
""",
)

# A sort of two operands, of which the first lies elsewhere than its result.
SORT = Written(
    optimized="""\
HloModule jit_sort, is_scheduled=true

%less (a: f32[], b: f32[], c: s32[], d: s32[]) -> pred[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  %c = s32[] parameter(2)
  %d = s32[] parameter(3)
  ROOT %lt = pred[] compare(%a, %b), direction=LT
}

%sorting (keys: f32[16]) -> (f32[16], s32[16]) {
  %keys = f32[16]{0} parameter(0)
  %places = s32[16]{0} iota(), iota_dimension=0
  ROOT %sorted = (f32[16]{0}, s32[16]{0}) sort(%keys, %places), dimensions={0}, to_apply=%less
}

ENTRY %main (x: f32[16]) -> (f32[16], s32[16]) {
  %x = f32[16]{0} parameter(0)
  %n = f32[16]{0} negate(%x)
  ROOT %s = (f32[16]{0}, s32[16]{0}) fusion(%n), kind=kInput, calls=%sorting
}
""",
    assignment="""\
BufferAssignment:
allocation 0: 0x7f00, size 64, parameter 0, shape |f32[16]| at ShapeIndex {}:
 value: <0 x @0> (size=64,offset=0): f32[16]{0}
allocation 1: 0x7f40, size 64, color 0, maybe-live-out:
 value: <1 s{0} @0> (size=64,offset=0): f32[16]{0}
allocation 2: 0x7f80, size 64, color 0, maybe-live-out:
 value: <2 s{1} @0> (size=64,offset=0): s32[16]{0}
allocation 3: 0x7fc0, size 64, color 0, preallocated-temp:
 value: <3 n @0> (size=64,offset=0): f32[16]{0}

Total bytes used: 256 (256B)

Used values:
<0 x @0>
 positions:
  x
""",
    sequence="001: kKernel\t, kernel = n\n002: kCopy\t, kCopy\n003: kKernel\t, kernel = s\n",
)

# An index that chooses between two branches, and a computation that runs aside.
BRANCHES = Written(
    optimized="""\
HloModule jit_branches, is_scheduled=true

%aside (q: f32[4]) -> f32[4] {
  %q = f32[4]{0} parameter(0)
  ROOT %far = f32[4]{0} cosine(%q)
}

%first (p: f32[4]) -> f32[4] {
  %p = f32[4]{0} parameter(0)
  %up = f32[4]{0} exponential(%p)
  ROOT %upper = f32[4]{0} negate(%up)
}

%second (r: f32[4]) -> f32[4] {
  %r = f32[4]{0} parameter(0)
  ROOT %down = f32[4]{0} sine(%r)
}

ENTRY %main (x: f32[4], k: s32[]) -> (f32[4], f32[4]) {
  %x = f32[4]{0} parameter(0)
  %k = s32[] parameter(1)
  %going = ((f32[4]{0}), f32[4]{0}, u32[]) async-start(%x), calls=%aside
  %choice = f32[4]{0} conditional(%k, %x, %x), branch_computations={%first, %second}
  %gone = f32[4]{0} async-done(%going)
  %sum = f32[4]{0} add(%gone, %choice)
  ROOT %t = (f32[4]{0}, f32[4]{0}) tuple(%sum, %choice)
}
""",
    assignment="""\
BufferAssignment:
allocation 0: size 16, parameter 0, shape |f32[4]| at ShapeIndex {}:
 value: <0 x @0> (size=16,offset=0): f32[4]{0}
allocation 1: size 4, parameter 1, shape |s32[]| at ShapeIndex {}:
 value: <1 k @0> (size=4,offset=0): s32[]
allocation 2: size 16, maybe-live-out:
 value: <2 upper @0> (size=16,offset=0): f32[4]{0}
 value: <3 down @0> (size=16,offset=0): f32[4]{0}
 value: <4 choice (phi) @0> (size=16,offset=0): f32[4]{0}
allocation 3: size 16, maybe-live-out:
 value: <5 sum @0> (size=16,offset=0): f32[4]{0}
allocation 4: size 32, preallocated-temp:
 value: <6 up @0> (size=16,offset=0): f32[4]{0}
 value: <7 far @0> (size=16,offset=16): f32[4]{0}
""",
    sequence="""\
000: kCommandBuffer [source | sink]
    001: kAsyncStart [source | next=007 (3)] stream=computation_stream[0], async_id=1
        002: kCustomKernel [source | sink] wrapped_cosine grid: [1, 1, 1]
    006: kConditional  [source       | next=007 (1)]
      branch_0:
        003: kCustomKernel [source       | next=004 (1)] wrapped_exponential grid: [1, 1, 1]
        004: kCustomKernel [prev=003 (1) | sink        ] wrapped_negate grid: [1, 1, 1]
      branch_1:
        005: kCustomKernel [source | sink] wrapped_sine grid: [1, 1, 1]
    008: kAsyncDone [source | sink] async_id=1
    007: kCustomKernel [prev=006 (1) | sink        ] wrapped_add grid: [1, 1, 1]
""",
)
