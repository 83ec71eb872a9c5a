"""The few kernels that belong to no HLO: setting conditions, filling, moving arrays."""

from __future__ import annotations

SET_WHILE = "hlo2graph_set_while"
SET_IF = "hlo2graph_set_if"
SET_SWITCH = "hlo2graph_set_switch"
SET_IF_IS = "hlo2graph_set_if_is"
SET_SWITCH_IS = "hlo2graph_set_switch_is"
FILLS = {width: f"hlo2graph_fill{width}" for width in (1, 2, 4, 8, 16)}  # by bytes of an element
MOVE = "hlo2graph_move"
NOTHING = "hlo2graph_nothing"
FILL_THREADS = 256
MOVE_THREADS = 256
MOVE_BYTES = 16 * 4 * MOVE_THREADS  # of a block, each time round
MOST_MOVES = 64  # of one launch

WORDS = {1: "unsigned char", 2: "unsigned short", 4: "unsigned int", 8: "u64"}
NARROW_FILLS = "\n".join(
    f"""\
extern "C" __global__ void {FILLS[width]}({word}* target, u64 count, u64 element) {{
  follow();
  fill(target, count, element);
}}"""
    for width, word in WORDS.items()
)

TEXT = f"""\
typedef unsigned long long u64;

// The device runtime's function; NVRTC knows no header that declares it.
extern "C" __device__ void cudaGraphSetConditional(u64 handle, unsigned int value);

// As hlo::follow of the other kernels: graphs join small kernels by programmatic edges.
__device__ inline void follow() {{
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}}

// HLO's switch takes its last branch for every selector that is out of range.
__device__ inline unsigned int branch_of(const int* selector, u64 branches) {{
  const int s = *selector;
  return s < 0 || (u64)s >= branches ? (unsigned int)branches - 1u : (unsigned int)s;
}}

extern "C" __global__ void {SET_WHILE}(u64 handle, const unsigned char* predicate, u64) {{
  follow();
  cudaGraphSetConditional(handle, *predicate != 0);
}}
extern "C" __global__ void {SET_IF}(u64 handle, const unsigned char* predicate, u64) {{
  follow();
  cudaGraphSetConditional(handle, *predicate != 0);
}}
extern "C" __global__ void {SET_SWITCH}(u64 handle, const int* selector, u64 branches) {{
  follow();
  cudaGraphSetConditional(handle, branch_of(selector, branches));
}}

// For drivers without SWITCH: one IF node a branch.
extern "C" __global__ void {SET_IF_IS}(u64 handle, const unsigned char* predicate, u64, u64 k) {{
  follow();
  cudaGraphSetConditional(handle, (*predicate ? 0u : 1u) == k);
}}
extern "C" __global__ void {SET_SWITCH_IS}(u64 handle, const int* selector, u64 branches, u64 k) {{
  follow();
  cudaGraphSetConditional(handle, branch_of(selector, branches) == k);
}}

template <typename T>
__device__ inline void fill(T* target, u64 count, u64 element) {{
  const u64 at = (u64)blockIdx.x * {FILL_THREADS} + threadIdx.x;
  if (at < count) target[at] = (T)element;
}}
{NARROW_FILLS}
extern "C" __global__ void {FILLS[16]}(u64* target, u64 count, u64 low, u64 high) {{
  follow();
  const u64 at = (u64)blockIdx.x * {FILL_THREADS} + threadIdx.x;
  if (at < count) target[2 * at] = low, target[2 * at + 1] = high;
}}

// Copies of arrays that no other copy here writes: one a row of blocks.
struct Moves {{
  u64 source[{MOST_MOVES}], target[{MOST_MOVES}], size[{MOST_MOVES}];
}};
template <typename T>
__device__ inline void move(u64 source, u64 target, u64 count) {{
  const T* from = (const T*)source;
  T* to = (T*)target;
  const u64 step = (u64)gridDim.x * {MOVE_THREADS};
  u64 at = (u64)blockIdx.x * {MOVE_THREADS} + threadIdx.x;
  for (; at + 3 * step < count; at += 4 * step) {{
    const T a = from[at], b = from[at + step], c = from[at + 2 * step], d = from[at + 3 * step];
    to[at] = a, to[at + step] = b, to[at + 2 * step] = c, to[at + 3 * step] = d;
  }}
  for (; at < count; at += step) to[at] = from[at];
}}
extern "C" __global__ void {MOVE}(const __grid_constant__ Moves moves) {{
  const u64 source = moves.source[blockIdx.y], target = moves.target[blockIdx.y];
  const u64 size = moves.size[blockIdx.y], skewed = source | target | size;
  if (skewed % 16 == 0) move<uint4>(source, target, size / 16);
  else if (skewed % 4 == 0) move<unsigned int>(source, target, size / 4);
  else move<unsigned char>(source, target, size);
}}

extern "C" __global__ void {NOTHING}() {{}}
"""
