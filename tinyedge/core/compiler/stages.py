"""The stages from a retyped graph to text: constants, kernels, moves, statements."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from tinyedge.core import dtype as dt
from tinyedge.core.compiler.attention import with_attention
from tinyedge.core.compiler.caps import Caps
from tinyedge.core.compiler.fp16 import packs_fp16, partly_written
from tinyedge.core.compiler.joined import with_joined_products
from tinyedge.core.compiler.levels import with_levels
from tinyedge.core.compiler.lower.ahead import fill_ahead
from tinyedge.core.compiler.lower.borders import free_borders
from tinyedge.core.compiler.lower.cooperative import cooperate
from tinyedge.core.compiler.lower.expand import expand, one_type_per_buffer
from tinyedge.core.compiler.lower.geometry import geometry, without_surplus
from tinyedge.core.compiler.lower.images import free_guards, not_pixels, to_coordinates
from tinyedge.core.compiler.lower.linear import linearize
from tinyedge.core.compiler.lower.places import free_places
from tinyedge.core.compiler.lower.regions import open_regions
from tinyedge.core.compiler.lower.runs import cut_into_runs
from tinyedge.core.compiler.lower.shuffles import permute_loads
from tinyedge.core.compiler.lower.through import store_through
from tinyedge.core.compiler.lower.wide_functions import widen_functions
from tinyedge.core.compiler.merged import with_merged_sums
from tinyedge.core.compiler.optimize.choose import baseline, choose, exact
from tinyedge.core.compiler.optimize.common_tiles import Chosen, common_tiles
from tinyedge.core.compiler.optimize.move import IllegalMove
from tinyedge.core.compiler.optimize.sizes import share_sizes
from tinyedge.core.compiler.paired import integer_weights, with_paired_products
from tinyedge.core.compiler.scaled import with_scaled_weights
from tinyedge.core.compiler.schedule.constants import fold_constants
from tinyedge.core.compiler.schedule.full import in_full
from tinyedge.core.compiler.schedule.in_place import results_over, write_over
from tinyedge.core.compiler.schedule.launches import Refusals, ScheduledLaunch, ScheduleOptions
from tinyedge.core.compiler.schedule.long_products import scale_long_products
from tinyedge.core.compiler.schedule.long_reductions import split_long_reductions
from tinyedge.core.compiler.schedule.long_rows import keep_long_rows
from tinyedge.core.compiler.schedule.numbers import numbers_read, share_numbers
from tinyedge.core.compiler.schedule.ordering import in_memory_order
from tinyedge.core.compiler.schedule.schedule import schedule
from tinyedge.core.compiler.schedule.splitting import split_weights
from tinyedge.core.compiler.shares import with_shares
from tinyedge.core.compiler.sigmoids import with_quotients
from tinyedge.core.compiler.state import Compilation, CompiledEntry, CompiledKernel
from tinyedge.core.compiler.target import LoweredArg, LoweredKernel
from tinyedge.core.compiler.winograd import with_winograd
from tinyedge.core.errors import InternalError
from tinyedge.core.ir import ops
from tinyedge.core.ir.buffers import TensorBuffer
from tinyedge.core.ir.shapes import maximum, product
from tinyedge.core.ir.spec import check_kernel, check_tensor
from tinyedge.core.ir.spec_lowered import check_lowered
from tinyedge.core.ir.uop import BINDING, UOp, as_size, own_ranges, toposort
from tinyedge.core.tensor.base import fixed


def fold(state: Compilation) -> None:
    """What depends on weights alone is computed."""
    options = state.options
    pairs = state.caps.pairs and options.optimize and not options.fp64_reference
    kept = integer_weights(state.roots, quads=state.caps.quads) if pairs else ()
    done = fold_constants(state.roots, options.folded_work, options.folded_growth, kept)
    state.follow(done)
    if options.optimize and not options.fp64_reference:
        state.follow(with_merged_sums(state.roots))
    plain = not (options.optimize and options.winograd) or options.fp64_reference
    if not plain and options.precision == "fp32":
        done, state.winograd = with_winograd(state.roots, options.winograd)
        state.follow(done)
    if options.optimize and not options.fp64_reference:
        if options.attention:
            done, state.attention = with_attention(state.roots, state.caps)
            state.follow(done)
        state.follow(with_shares(state.roots))
        if pairs:
            state.follow(with_paired_products(state.roots, quads=state.caps.quads))
        if state.caps.levels:
            state.follow(with_levels(state.roots))
        state.follow(with_quotients(state.roots, state.caps))
        state.follow(with_joined_products(state.roots, state.caps))
        state.follow(with_scaled_weights(state.roots, state.caps))
    check_tensor(state.roots)


def form_kernels(state: Compilation) -> None:
    """Tensors to kernels and buffers.

    An fp16 tensor that a kernel would not write in whole vectors is kept in full instead, and an
    image that one would not read and write in whole pixels becomes a buffer: which these are is
    found by choosing the kernels' moves.
    """
    options = ScheduleOptions(
        state.caps,
        state.options.precision == "fp16",
        state.options.optimize and not state.options.fp64_reference,
        fp64_reference=state.options.fp64_reference,
    )
    state.follow(split_weights(state.roots, options))
    fp16 = options.fp16_storage
    state.follow(scale_long_products(state.roots, fp16_storage=fp16))
    if state.options.optimize:
        state.follow(keep_long_rows(state.roots, state.caps, fp16_storage=fp16))
        state.follow(split_long_reductions(state.roots, state.caps, fp16_storage=fp16))
    for entry in state.entries:
        outputs = {str(number): root for number, root in enumerate(entry.roots)}
        counts = {name: str(number) for number, name in enumerate(entry.counts)}
        updating = replace(options, recompute=options.joined and bool(entry.updates))
        exact = in_full(entry.updates.values(), entry.gradients)
        entry.schedule = schedule(outputs, entry.names, updating, counts, exact)
    share_numbers(state.launches, state.caps)
    _refuse(state)
    if state.options.optimize:
        _order(state)
        _write_over(state)
    for sink in {launch.sink: None for launch in state.launches}:
        check_kernel(sink)


def _order(state: Compilation) -> None:
    """The launches of entries that update states in an order that needs less memory."""
    for entry in state.entries if not state.options.fp64_reference else ():
        if entry.updates:
            pairs = list(_in_place(entry))
            entry.schedule.launches = in_memory_order(entry.schedule.launches, pairs)


def _write_over(state: Compilation) -> None:
    """States' new values in place of the old ones, where their kernels allow it, and results of a
    processor, of more than a thread's array, in place of what they are made of.
    """
    for entry in state.entries:
        for old, new in _in_place(entry):
            write_over(entry.schedule.launches, old, new)
        if state.caps.threads == 1:
            found = list(entry.schedule.outputs.values())
            first = len(found) - len(entry.updates)
            results = [each for each in found[:first] if each not in found[first:]]
            results_over(entry.schedule.launches, results, state.caps.array)


def _in_place(entry: CompiledEntry) -> Iterator[tuple[TensorBuffer, TensorBuffer]]:
    """The buffers of the old and new values of states of which the new one is nothing else."""
    found = list(entry.schedule.outputs.values())
    first = len(found) - len(entry.updates)
    for name, new in zip(entry.updates, found[first:], strict=True):
        old = entry.schedule.inputs.get(name)
        if old is not None and found.count(new) == 1:
            yield old, new


def _refuse(state: Compilation) -> None:
    """Find what kernels cannot take as it lies in memory. What is laid out otherwise may change
    which moves are chosen, so that more is found.
    """
    if not state.caps.image and not packs_fp16(state):
        return
    while True:
        _choose(state)
        refused = state.refusals | Refusals(partly_written(state), _non_contiguous_images(state))
        if refused == state.refusals:
            return
        state.refusals = refused
        for entry in state.entries:
            entry.schedule.refuse(refused)
        share_numbers(state.launches, state.caps)


def _non_contiguous_images(state: Compilation) -> frozenset[UOp]:
    """Tensors that were made images, but that a kernel would not take in whole pixels."""
    return frozenset(
        storage.node
        for launch in state.launches
        for slot, storage in enumerate(launch.storages)
        if slot in state.kernels[launch.sink].non_contiguous and storage.node is not None
    )


def optimize(state: Compilation) -> None:
    """Moves for every distinct kernel; those that then differ in sizes alone become one."""
    _choose(state)
    if state.options.optimize and state.caps.shares_sizes:
        _share_tiles(state)
        _share_sizes(state)


def _share_tiles(state: Compilation) -> None:
    kernels = list(state.kernels.values())
    given = [Chosen(k.sink, k.contraction, k.moved, k.moves) for k in kernels]
    for position, (moved, moves) in common_tiles(given, state.caps, choose).items():
        check_kernel(moved)
        kernel = kernels[position]
        kernel.moved, kernel.expanded, kernel.moves = moved, None, moves


def _share_sizes(state: Compilation) -> None:
    launches: dict[UOp, list[ScheduledLaunch]] = {}
    for launch in state.launches:
        launches.setdefault(launch.sink, []).append(launch)
    kernels = list(state.kernels.values())
    given = [(k.sink, k.moves, len(launches[k.sink][0].storages)) for k in kernels]
    for shared in share_sizes(given, state.caps):
        check_kernel(shared.sink)
        for member in shared.members:
            kernel = kernels[member.position]
            kernel.moved, kernel.expanded, kernel.moves = shared.sink, None, list(member.moves)
            kernel.groups = member.groups
            if member.numbers:
                read = numbers_read(np.array(member.numbers, np.int32))
                for launch in launches[kernel.sink]:
                    launch.storages = (*launch.storages, read)


def _choose(state: Compilation) -> None:
    """Moves for every distinct kernel; those that were chosen before are kept."""
    before, state.kernels = state.kernels, {}
    times = Counter(launch.sink for launch in state.launches)
    for launch in state.launches:
        if launch.sink in state.kernels:
            continue
        name = _kernel_name(len(state.kernels), launch)
        known = before.get(launch.sink)
        kernel = (
            _chosen(state, launch, name, times[launch.sink])
            if known is None
            else replace(known, name=name)
        )
        state.kernels[launch.sink] = kernel


def _chosen(state: Compilation, launch: ScheduledLaunch, name: str, times: int) -> CompiledKernel:
    """times: that the kernel is launched."""
    given = launch.sink, state.caps, launch.contraction
    try:
        if state.options.optimize:
            moved, moves = choose(*given)
        elif state.options.fp64_reference:
            moved, moves = exact(*given, times)
        else:
            moved, moves = baseline(*given)
    except IllegalMove as illegal:
        raise InternalError(
            f"kernel {name}", str(illegal), id="compile.move", next="report this"
        ) from illegal
    check_kernel(moved)
    flops = operations(launch.sink)
    kernel = CompiledKernel(name, launch.sink, moved, moves, launch.contraction, flops=flops)
    if state.caps.image:
        kernel.non_contiguous = not_pixels(_expanded(kernel, state.caps))
    return kernel


def _expanded(kernel: CompiledKernel, caps: Caps) -> UOp:
    """The kernel's expanded form, made once."""
    if kernel.expanded is None:
        moved = free_guards(kernel.moved) if caps.image else kernel.moved
        kernel.expanded = expand(moved, caps)
    return kernel.expanded


def operations(sink: UOp) -> int:
    """Arithmetic operations on values (not on indices) that a kernel does, at the symbols' maxima.

    Each operation is done once for every step of the ranges it depends on; a fold's once more for
    every step.
    """
    total = 0
    for node in toposort((sink,)):
        if node.op in BINDING:
            ranges = node.src[0].ranges | set(own_ranges(node))
        elif node.op.group in ("unary", "binary") and node.dtype not in (dt.index, dt.bool_):
            ranges = node.ranges
        else:
            continue
        count = 1
        for r in ranges:
            count *= maximum(as_size(r.src[0]))
        total += count
    return total


def _kernel_name(number: int, launch: ScheduledLaunch) -> str:
    label = launch.nodes[-1] if launch.nodes else ""
    words = re.sub(r"[^a-z0-9]+", "_", label.lower()).strip("_")[:32]
    return f"k{number}_{words}" if words else f"k{number}"


def lower(state: Compilation) -> None:
    """Ranges to loops, expressions to statements."""
    storages: dict[UOp, list[tuple[TensorBuffer, ...]]] = {}
    for launch in state.launches:
        storages.setdefault(launch.sink, []).append(launch.storages)
    known: dict[TensorBuffer, bool] = {}
    for kernel in state.kernels.values():
        is_finite = partial(_is_finite, storages[kernel.sink], known)
        pictures = _pictures(state, storages[kernel.sink])
        kernel.text = _lowered(kernel, state.caps, is_finite, pictures)


def _is_finite(
    given: Sequence[tuple[TensorBuffer, ...]], known: dict[TensorBuffer, bool], slot: int
) -> bool:
    """Whether the weight that launches have in a slot holds numbers alone."""
    for weight in (storages[slot] for storages in given):
        if weight not in known:
            values = np.asarray(weight.data)
            known[weight] = values.dtype.kind != "f" or bool(np.isfinite(values).all())
    return all(known[storages[slot]] for storages in given)


def _pictures(
    state: Compilation, given: Sequence[tuple[TensorBuffer, ...]]
) -> dict[int, tuple[int, int]]:
    """The slot in which launches have pictures that the target takes as textures: how many, and the
    bytes of a pixel. Of several such inputs none: a caller may give bytes for some of them.
    """
    declared = {
        (port.name, port.shape)
        for entry in state.entries
        for port in entry.graph.inputs
        if port.picture
    }
    slots = {
        slot
        for storages in given
        for slot, storage in enumerate(storages)
        if storage.role == "input" and (storage.name, storage.shape) in declared
    }
    if len(slots) != 1:
        return {}
    (slot,) = slots
    *frames, _, _, channels = given[0][slot].shape
    picture = fixed(product(frames)), fixed(channels)
    return {slot: picture} if picture[0] <= state.target.textures else {}


def _lowered(
    kernel: CompiledKernel,
    caps: Caps,
    is_finite: Callable[[int], bool],
    pictures: Mapping[int, tuple[int, int]],
) -> LoweredKernel:
    """A kernel after its moves, as statements. is_finite: whether all numbers are in the weight of
    a slot, for all launches. pictures: what arguments have of them, by slot.
    """
    sink = _expanded(kernel, caps)
    if caps.image:
        sink = to_coordinates(sink)
    if not caps.unaligned:
        sink = one_type_per_buffer(sink, caps)
    if caps.shared_tiles:  # whose rows and columns are rounded up
        sink = free_places(sink)
    sink = cut_into_runs(free_borders(sink, caps, is_finite), caps)
    sink = permute_loads(open_regions(sink, caps), caps)
    sink = widen_functions(sink, caps)
    nodes = toposort((sink,))
    # also what moves have left no load of: launches bind it
    given = toposort((kernel.sink,))
    params = {n.arg.slot: n for n in (*given, *nodes) if n.op is ops.PARAM}
    arguments = tuple(
        LoweredArg(param, param.arg.written, param.arg.weight, pictures.get(slot))
        for slot, param in sorted(params.items())
    )
    shape = geometry(sink, caps)
    sink = without_surplus(sink, shape)
    if kernel.groups:
        shape = replace(shape, grid=(kernel.groups, *(1 for _ in caps.grid[1:])))
    used = {n.arg.name for n in nodes if n.op is ops.SYMBOL and not n.src}
    statements = linearize(sink, vectors_in_turn=caps.vectors_in_turn)
    linear = cooperate(fill_ahead(store_through(statements)), shape, caps)
    check_lowered(linear, shape)
    return LoweredKernel(kernel.name, linear, shape, arguments, tuple(sorted(used)))


def render(state: Compilation) -> None:
    """Statements to text."""
    symbols = tuple(sorted(state.symbols))
    for kernel in state.kernels.values():
        assert kernel.text is not None
        text = kernel.text
        if text.symbols:
            text = LoweredKernel(text.name, text.linear, text.geometry, text.arguments, symbols)
        kernel.text = text
        kernel.source = state.target.render(text)
