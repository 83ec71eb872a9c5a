"""Communication with the host: inferred in full and planned, refused when run.

Shapes follow OpenXLA's operation page: a send or receive holds its data, a u32 and a token.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlo2graph.errors import UnsupportedError
from hlo2graph.hlo import DTYPES, AnyShape, Instruction, Shape, TupleShape
from hlo2graph.ops.device import NoDevice
from hlo2graph.ops.expect import same, token, tuple_of
from hlo2graph.ops.spec import Array, Computations, Evaluator, HostValue, Infer, Lowering, OpSpec

_TOKEN, _U32 = Shape(DTYPES["token"]), Shape(DTYPES["u32"])
_CHANNEL = ("channel_id", "is_host_transfer")
_NEEDS_HOST = "talks to a host program that is not there"


def _needs_host(_: Instruction) -> str:
    return _NEEDS_HOST


def _refused(instr: Instruction, _: Sequence[HostValue], __: Evaluator) -> Array:
    raise UnsupportedError(f"{instr.opcode} cannot run here", instr.span)


def _infeed(instr: Instruction, operands: Sequence[AnyShape], _: Computations) -> AnyShape:
    token(instr, operands[0])
    parts = tuple_of(instr, instr.shape, least=2).parts
    return TupleShape((parts[0], _TOKEN))


def _outfeed(instr: Instruction, operands: Sequence[AnyShape], _: Computations) -> AnyShape:
    token(instr, operands[1], "second operand")
    fed = instr.attrs.get("outfeed_shape")
    if isinstance(fed, Shape | TupleShape):
        same(instr, operands[0], fed, "what it feeds")
    return _TOKEN


def _send(instr: Instruction, operands: Sequence[AnyShape], _: Computations) -> AnyShape:
    token(instr, operands[1], "second operand")
    return TupleShape((operands[0], _U32, _TOKEN))


def _recv(instr: Instruction, operands: Sequence[AnyShape], _: Computations) -> AnyShape:
    token(instr, operands[0])
    return TupleShape((tuple_of(instr, instr.shape, least=3).parts[0], _U32, _TOKEN))


def _send_done(instr: Instruction, operands: Sequence[AnyShape], _: Computations) -> AnyShape:
    token(instr, tuple_of(instr, operands[0], least=3).parts[2], "operand's last part")
    return _TOKEN


def _recv_done(instr: Instruction, operands: Sequence[AnyShape], _: Computations) -> AnyShape:
    return TupleShape((tuple_of(instr, operands[0], least=3).parts[0], _TOKEN))


def _host_io(opcode: str, arity: int, infer: Infer, *attrs: str) -> OpSpec:
    return OpSpec(
        opcode,
        arity,
        infer,
        _refused,
        frozenset(attrs),
        Lowering.HOST_IO,
        effect=True,
        why_not=_needs_host,
        device=NoDevice(_NEEDS_HOST),
    )


HOST_IO: tuple[OpSpec, ...] = (
    _host_io("infeed", 1, _infeed, "infeed_config"),
    _host_io("outfeed", 2, _outfeed, "outfeed_config", "outfeed_shape"),
    _host_io("send", 2, _send, *_CHANNEL),
    _host_io("send-done", 1, _send_done, *_CHANNEL),
    _host_io("recv", 1, _recv, *_CHANNEL),
    _host_io("recv-done", 1, _recv_done, *_CHANNEL),
)
