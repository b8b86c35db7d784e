"""Hostile bundles, for the readers of every runtime.

    python tests/attacks/make.py OUTDIR

makes one folder an attack, and a copy of `expected.json`: attack -> {"id", "needs"}. `id` is the
error that refuses it, "" where the bundle must be accepted. `needs` is "" or what the reader must
have for the attack to mean something to it: "filesystem" (links and pipes), "goldens" (it checks
them), "features" (it implements all those of version 1), "images" (it serves targets that have
images, or programs for several kinds of devices; others answer `bundle.feature` or
`bundle.target`), "hashes" (it checks them).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from tests.bundles import programs  # noqa: E402
from tinyedge.export.bundle.writing import write  # noqa: E402

EXPECTED = Path(__file__).with_name("expected.json")

Manifest = dict[str, Any]
ATTACKS: dict[str, tuple[str, Callable[[Path], None]]] = {}


def spell(manifest: Any) -> str:
    """The canonical layout, of values that the format forbids too."""

    def compact(value: Any) -> str:
        return json.dumps(value, sort_keys=True, separators=(",", ":"))

    def member(value: Any) -> str:
        if isinstance(value, list) and value:
            return "[\n" + ",\n".join(map(compact, value)) + "\n]"
        return compact(value)

    members = (f"{compact(key)}:{member(manifest[key])}" for key in sorted(manifest))
    return "{\n" + ",\n".join(members) + "\n}\n"


def files(base: str) -> Any:
    """An attack on the folder."""

    def register(function: Callable[[Path], None]) -> Callable[[Path], None]:
        ATTACKS[function.__name__] = (base, function)
        return function

    return register


def text(base: str) -> Any:
    """An attack on the manifest's text."""

    def register(function: Callable[[str], str]) -> Callable[[str], str]:
        def apply(folder: Path) -> None:
            path = folder / "manifest.json"
            path.write_bytes(function(path.read_text("ascii")).encode("utf-8", "surrogatepass"))

        ATTACKS[function.__name__] = (base, apply)
        return function

    return register


def manifest(base: str) -> Any:
    """An attack on the manifest's value, spelled canonically."""

    def register(function: Callable[[Manifest], None]) -> Callable[[Manifest], None]:
        def apply(folder: Path) -> None:
            path = folder / "manifest.json"
            value = json.loads(path.read_text("ascii"))
            function(value)
            path.write_text(spell(value), "ascii")

        ATTACKS[function.__name__] = (base, apply)
        return function

    return register


# --- sound bundles -----------------------------------------------------------------------------


@manifest("plain")
def sound_plain(m: Manifest) -> None:
    pass


def _golden_states(m: Manifest, count: int, **changes: int) -> None:
    """So many records of states behind a golden's outputs."""
    outputs = m["golden"][0]["outputs"]
    outputs.extend([{**outputs[0], **changes} for _ in range(count)])


@manifest("everything")
def golden_of_more_than_the_states(m: Manifest) -> None:
    _golden_states(m, len(m["states"]) + 1, bytes=0)


@manifest("everything")
def golden_state_of_another_size(m: Manifest) -> None:
    _golden_states(m, len(m["states"]), bytes=2)


@manifest("everything")
def golden_states_that_are_not_told(m: Manifest) -> None:
    """Allowed: nothing is compared."""
    _golden_states(m, len(m["states"]), bytes=0)


@manifest("everything")
def sound_everything(m: Manifest) -> None:
    pass


@manifest("plain")
def sound_expression_of_255_tokens(m: Manifest) -> None:
    m["steps"][0]["grid"][0] = ["max"] * 127 + [1] * 128


@manifest("plain")
def sound_depth_8(m: Manifest) -> None:
    m["options"] = {"a": [[[[[["leaf"]]]]]]}


@manifest("plain")
def sound_odd_names(m: Manifest) -> None:
    m["inputs"][0]["name"] = '\\n"/../<script>\U0001f41e\u0600{"'


@manifest("plain")
def sound_codes(m: Manifest) -> None:
    m["inputs"][0] |= {"dtype": "uint16:bfloat16", "storage": "uint32"}
    m["outputs"][0] |= {"dtype": "int8:Nobody_knows_what_they_mean", "storage": "int32"}
    m["weights"][0]["dtype"] = "uint8:float8_e4m3fn"
    m["golden"] = []


@manifest("everything")
def sound_inputs_of_one_name_in_two_entries(m: Manifest) -> None:
    for entry in m["entries"]:
        m["inputs"][entry["inputs"][0]]["name"] = "x"


@files("plain")
def sound_foreign_files(folder: Path) -> None:
    (folder / "index.html").write_text("<p>edited</p>")
    (folder / "weights-00009.bin").write_bytes(b"unlisted")


# --- the manifest's text -----------------------------------------------------------------------


@files("plain")
def no_manifest(folder: Path) -> None:
    (folder / "manifest.json").unlink()


@files("plain")
def manifest_is_a_link(folder: Path) -> None:
    (folder / "manifest.json").rename(folder / "elsewhere.json")
    (folder / "manifest.json").symlink_to("elsewhere.json")


@files("plain")
def manifest_is_a_pipe(folder: Path) -> None:
    (folder / "manifest.json").unlink()
    os.mkfifo(folder / "manifest.json")


@text("plain")
def manifest_too_large(t: str) -> str:
    return t + " " * (16 * 2**20)


@text("plain")
def empty_manifest(t: str) -> str:
    return ""


@text("plain")
def cut_manifest(t: str) -> str:
    return t[: len(t) // 2]


@text("plain")
def trailing_text(t: str) -> str:
    return t + "{}"


@text("plain")
def byte_order_mark(t: str) -> str:
    return "\ufeff" + t


@text("plain")
def white_space(t: str) -> str:
    return t.replace('"version":1', '"version": 1')


@text("plain")
def carriage_returns(t: str) -> str:
    return t.replace("\n", "\r\n")


@text("plain")
def one_line(t: str) -> str:
    return t.replace("\n", "")


@text("plain")
def duplicate_key(t: str) -> str:
    return t.replace('"version":1', '"version":1,\n"version":1')


@text("plain")
def duplicate_key_inside(t: str) -> str:
    return t.replace('{"bytes":512}', '{"bytes":512,"bytes":512}')


@text("plain")
def unsorted_keys(t: str) -> str:
    return t.replace('"name":"x","shape":[4,4]', '"shape":[4,4],"name":"x"', 1)


@text("plain")
def escaped_key(t: str) -> str:
    return t.replace('"version"', '"\\u0076ersion"')


@text("plain")
def escaped_letter(t: str) -> str:
    return t.replace('"webgpu"', '"webgp\\u0075"')


@text("plain")
def raw_unicode(t: str) -> str:
    return t.replace('"name":"x"', '"name":"\u00e9"')


@text("plain")
def upper_case_escape(t: str) -> str:
    return t.replace('"name":"x"', '"name":"\\u00E9"')


@text("plain")
def control_character(t: str) -> str:
    return t.replace('"name":"x"', '"name":"\\n"')


@text("plain")
def lone_surrogate(t: str) -> str:
    return t.replace('"name":"x"', '"name":"\\ud800"')


@text("plain")
def float_value(t: str) -> str:
    return t.replace('"version":1', '"version":1.5')


@text("plain")
def whole_float(t: str) -> str:
    return t.replace('"version":1', '"version":1.0')


@text("plain")
def exponent(t: str) -> str:
    return t.replace('"peak_bytes":576', '"peak_bytes":576e0')


@text("plain")
def minus_zero(t: str) -> str:
    return t.replace('"seed":0', '"seed":-0')


@text("plain")
def leading_zero(t: str) -> str:
    return t.replace('"version":1', '"version":01')


@text("plain")
def not_a_number(t: str) -> str:
    return t.replace('"version":1', '"version":NaN')


@text("plain")
def infinite_integer(t: str) -> str:
    return t.replace('"peak_bytes":576', '"peak_bytes":' + "9" * 400)


@text("plain")
def endless_integer(t: str) -> str:
    return t.replace('"peak_bytes":576', '"peak_bytes":' + "1" * 100_000)


@text("plain")
def integer_2_to_53(t: str) -> str:
    return t.replace('"peak_bytes":576', '"peak_bytes":9007199254740992')


@text("plain")
def null_value(t: str) -> str:
    return t.replace('"options":{}', '"options":null')


@text("plain")
def deep_arrays(t: str) -> str:
    return t.replace('"options":{}', '"options":{"a":' + "[" * 100_000 + "]" * 100_000 + "}")


@manifest("plain")
def depth_9(m: Manifest) -> None:
    m["options"] = {"a": [[[[[[["leaf"]]]]]]]}


@manifest("plain")
def key_with_a_space(m: Manifest) -> None:
    m["options"] = {"a b": 1}


@manifest("plain")
def key_that_is_a_number(m: Manifest) -> None:
    m["options"] = {"0": 1}


@text("plain")
def root_is_an_array(t: str) -> str:
    return "[\n" + t + "]\n"


# --- identity ----------------------------------------------------------------------------------


@manifest("plain")
def another_format(m: Manifest) -> None:
    m["format"] = "safetensors"


@manifest("plain")
def no_format(m: Manifest) -> None:
    del m["format"]


@manifest("plain")
def version_2(m: Manifest) -> None:
    m["version"] = 2


@manifest("plain")
def version_true(m: Manifest) -> None:
    m["version"] = True


@manifest("plain")
def unknown_feature(m: Manifest) -> None:
    m["features"] = ["telepathy"]


@manifest("plain")
def features_no_array(m: Manifest) -> None:
    m["features"] = "loop"


@manifest("plain")
def odd_target(m: Manifest) -> None:
    m["target"] = "../webgpu"


# --- records -----------------------------------------------------------------------------------


@manifest("plain")
def unknown_key(m: Manifest) -> None:
    m["script"] = "alert(1)"


@manifest("plain")
def unknown_key_inside(m: Manifest) -> None:
    m["kernels"][0]["script"] = "alert(1)"


@manifest("plain")
def prototype_key(m: Manifest) -> None:
    m["weights"][0]["__proto__"] = {"bytes": 64}


@manifest("plain")
def missing_key(m: Manifest) -> None:
    del m["buffers"][0]["offset"]


@manifest("plain")
def string_for_an_integer(m: Manifest) -> None:
    m["buffers"][0]["offset"] = "0"


@manifest("plain")
def bool_for_an_integer(m: Manifest) -> None:
    m["buffers"][0]["offset"] = False


@manifest("plain")
def integer_for_a_bool(m: Manifest) -> None:
    m["kernels"][0]["symbols"] = 0


@manifest("plain")
def object_for_an_array(m: Manifest) -> None:
    m["steps"] = {}


@manifest("plain")
def negative_size(m: Manifest) -> None:
    m["buffers"][0]["bytes"] = -64


@manifest("plain")
def unknown_dtype(m: Manifest) -> None:
    m["inputs"][0]["dtype"] = "complex64"


@manifest("plain")
def codes_of_a_type_too_wide(m: Manifest) -> None:
    m["inputs"][0] |= {"dtype": "uint32:float32", "storage": "uint32"}


@manifest("plain")
def codes_that_mean_nothing(m: Manifest) -> None:
    m["inputs"][0] |= {"dtype": "uint16:", "storage": "uint16"}


@manifest("plain")
def codes_that_mean_too_much(m: Manifest) -> None:
    m["inputs"][0] |= {"dtype": "uint16:" + "x" * 33, "storage": "uint16"}


@manifest("plain")
def codes_with_an_odd_meaning(m: Manifest) -> None:
    m["inputs"][0] |= {"dtype": "uint16:b-float", "storage": "uint16"}


@manifest("plain")
def codes_as_storage(m: Manifest) -> None:
    m["inputs"][0] |= {"dtype": "uint16:bfloat16", "storage": "uint16:bfloat16"}


@manifest("plain")
def codes_in_floats(m: Manifest) -> None:
    m["inputs"][0] |= {"dtype": "uint16:bfloat16", "storage": "float32"}


@manifest("plain")
def codes_of_a_line(m: Manifest) -> None:
    m["inputs"][0] |= {"dtype": "uint8:a\n", "storage": "uint8"}


@manifest("plain")
def golden_of_codes_beyond_their_type(m: Manifest) -> None:
    m["inputs"][0] |= {"dtype": "uint8:float8_e5m2", "storage": "uint32"}
    m["golden"][0]["inputs"][0] |= {"min": 0, "max": 256}


@manifest("plain")
def storage_that_cannot_hold(m: Manifest) -> None:
    m["inputs"][0]["storage"] = "int32"


@manifest("plain")
def unknown_step(m: Manifest) -> None:
    m["steps"][0]["op"] = "exec"


@manifest("everything")
def step_that_version_1_once_had(m: Manifest) -> None:
    m["steps"][1] = {"op": "if", "condition": 3, "then": 2, "otherwise": 1}


@manifest("plain")
def feature_that_version_1_once_had(m: Manifest) -> None:
    m["features"] = ["if"]


@manifest("plain")
def inherited_step(m: Manifest) -> None:
    m["steps"][0]["op"] = "constructor"


@manifest("plain")
def input_with_slices(m: Manifest) -> None:
    m["inputs"][0]["slices"] = [{"axis": 0, "name": "a", "size": 1, "start": 0}]


@manifest("plain")
def entry_point_with_code(m: Manifest) -> None:
    m["kernels"][0]["entry"] = "scale() { } fn evil"


@manifest("plain")
def hash_of_63_digits(m: Manifest) -> None:
    m["files"][0]["sha256"] = "0" * 63


@manifest("plain")
def endless_name(m: Manifest) -> None:
    m["inputs"][0]["name"] = "x" * 1025


@manifest("plain")
def zero_workgroup(m: Manifest) -> None:
    m["kernels"][0]["workgroup"] = [64, 0, 1]


@manifest("plain")
def arena_of_a_petabyte(m: Manifest) -> None:
    m["arenas"][0]["bytes"] = 2**50


@manifest("plain")
def too_many_axes(m: Manifest) -> None:
    m["inputs"][0]["shape"] = [1] * 9


@manifest("plain")
def too_many_arenas(m: Manifest) -> None:
    m["arenas"] = [{"bytes": 256}] * 65


@manifest("plain")
def too_many_buffers(m: Manifest) -> None:
    m["buffers"] = [{"arena": 0, "bytes": 4, "offset": 0, "weight": -1}] * 262_145


@manifest("plain")
def no_entry(m: Manifest) -> None:
    m["entries"] = []


@manifest("plain")
def two_counts(m: Manifest) -> None:
    m["steps"][0]["grid"] = [1, 1]


@manifest("plain")
def expression_of_256_tokens(m: Manifest) -> None:
    m["steps"][0]["grid"][0] = ["max"] * 127 + [1] * 129


@manifest("plain")
def expression_of_expressions(m: Manifest) -> None:
    m["steps"][0]["grid"][0] = ["add", ["add", 1, 1], 1]


# --- names and indices -------------------------------------------------------------------------


@manifest("plain")
def path_traversal(m: Manifest) -> None:
    m["files"][1]["name"] = "../weights-00000.bin"


@manifest("plain")
def absolute_path(m: Manifest) -> None:
    m["files"][1]["name"] = "/etc/passwd"


@manifest("plain")
def url_for_a_file(m: Manifest) -> None:
    m["files"][-1]["name"] = "weights-00000.bin?x=https://example.com/"


@manifest("plain")
def file_twice(m: Manifest) -> None:
    m["files"].insert(1, dict(m["files"][0]))


@manifest("plain")
def files_out_of_order(m: Manifest) -> None:
    m["files"].reverse()


@manifest("everything")
def two_inputs_of_one_name(m: Manifest) -> None:
    first, second = m["entries"][0]["inputs"]
    m["inputs"][second]["name"] = m["inputs"][first]["name"]


@manifest("everything")
def two_outputs_of_one_name(m: Manifest) -> None:
    first, second = m["entries"][0]["outputs"]
    m["outputs"][second]["name"] = m["outputs"][first]["name"]


@manifest("everything")
def two_inputs_of_one_name_and_a_third_that_is_not_there(m: Manifest) -> None:
    first, second = m["entries"][0]["inputs"]
    m["inputs"][second]["name"] = m["inputs"][first]["name"]
    m["entries"][0]["inputs"].append(7)


@manifest("everything")
def an_input_twice_in_an_entry(m: Manifest) -> None:
    m["entries"][0]["inputs"] *= 2


@manifest("everything")
def two_states_of_one_name(m: Manifest) -> None:
    m["states"][1]["name"] = m["states"][0]["name"]


@manifest("everything")
def two_kernels_of_one_name(m: Manifest) -> None:
    m["kernels"][1]["entry"] = m["kernels"][0]["entry"]


@manifest("plain")
def kernel_out_of_range(m: Manifest) -> None:
    m["steps"][0]["kernel"] = 1


@manifest("plain")
def buffer_minus_1(m: Manifest) -> None:
    m["steps"][0]["buffers"][0] = -1


@manifest("plain")
def buffer_of_nothing(m: Manifest) -> None:
    m["buffers"][0]["arena"] = -1


@manifest("plain")
def buffer_of_arena_and_weight(m: Manifest) -> None:
    m["buffers"][2]["arena"] = 0


@manifest("plain")
def fewer_buffers_than_bindings(m: Manifest) -> None:
    m["steps"][0]["buffers"].pop()


@manifest("plain")
def weight_in_the_kernels(m: Manifest) -> None:
    names = [record["name"] for record in m["files"]]
    m["weights"][0]["segments"][0]["file"] = names.index("kernels.wgsl")


@manifest("plain")
def golden_of_another_entry(m: Manifest) -> None:
    m["golden"][0]["outputs"] = []


@manifest("everything")
def count_that_is_not_there(m: Manifest) -> None:
    m["outputs"][0]["count"] = 7


@manifest("everything")
def count_of_no_axis(m: Manifest) -> None:
    m["outputs"][0]["axis"] = 2


@manifest("everything")
def unlisted_feature(m: Manifest) -> None:
    m["features"].remove("loop")


# --- expressions -------------------------------------------------------------------------------


@manifest("plain")
def expression_bomb(m: Manifest) -> None:
    m["steps"][0]["grid"][0] = ["mul"] * 100 + [2] * 101


@manifest("plain")
def expression_overflow_inside(m: Manifest) -> None:
    m["steps"][0]["grid"][0] = ["mod", "mul", 94906267, 94906267, 8]


@manifest("plain")
def unknown_symbol(m: Manifest) -> None:
    m["steps"][0]["grid"][0] = ["$H"]


@manifest("plain")
def unknown_operator(m: Manifest) -> None:
    m["steps"][0]["grid"][0] = ["pow", 2, 2]


@manifest("plain")
def inherited_operator(m: Manifest) -> None:
    m["steps"][0]["grid"][0] = ["toString", 2, 2]


@manifest("plain")
def missing_operand(m: Manifest) -> None:
    m["steps"][0]["grid"][0] = ["add", 1]


@manifest("plain")
def left_over_operand(m: Manifest) -> None:
    m["steps"][0]["grid"][0] = ["add", 1, 1, 1]


@manifest("plain")
def division_by_zero(m: Manifest) -> None:
    m["steps"][0]["grid"][0] = ["floordiv", 1, 0]


@manifest("plain")
def division_by_minus_1(m: Manifest) -> None:
    m["steps"][0]["grid"][0] = ["mod", 1, -1]


@manifest("everything")
def division_by_zero_at_the_minimum(m: Manifest) -> None:
    m["steps"][0]["grid"][0] = ["ceildiv", 1, "$mul"]


# --- ranges ------------------------------------------------------------------------------------


@manifest("everything")
def symbol_step_that_does_not_fit(m: Manifest) -> None:
    m["symbols"][0]["step"] = 3


@manifest("everything")
def symbol_max_below_min(m: Manifest) -> None:
    m["symbols"][1].update(min=9, max=5)


@manifest("plain")
def wrong_peak(m: Manifest) -> None:
    m["peak_bytes"] += 1


@manifest("plain")
def buffer_leaves_its_arena(m: Manifest) -> None:
    m["buffers"][1]["bytes"] = 260


@manifest("plain")
def buffer_at_128(m: Manifest) -> None:
    m["buffers"][1]["offset"] = 128


@manifest("plain")
def buffer_of_part_of_a_weight(m: Manifest) -> None:
    m["buffers"][2]["bytes"] = 60


@manifest("plain")
def segments_shorter_than_their_weight(m: Manifest) -> None:
    m["weights"][0]["segments"][0]["bytes"] = 60


@manifest("plain")
def segment_at_4(m: Manifest) -> None:
    m["weights"][0]["segments"][0]["offset"] = 4


@manifest("plain")
def segment_leaves_its_file(m: Manifest) -> None:
    m["weights"][0]["segments"][0]["offset"] = 2**52


@manifest("plain")
def shard_of_a_gigabyte(m: Manifest) -> None:
    m["files"][-1]["bytes"] = 2**30


@manifest("plain")
def kernel_leaves_its_file(m: Manifest) -> None:
    m["kernels"][0]["bytes"] = 10_000


@manifest("plain")
def input_larger_than_its_buffer(m: Manifest) -> None:
    m["inputs"][0]["shape"] = [4, 5]


@manifest("plain")
def input_of_endless_elements(m: Manifest) -> None:
    m["inputs"][0]["shape"] = [2**31] * 8


@manifest("plain")
def input_in_a_weight(m: Manifest) -> None:
    m["inputs"][0]["buffer"] = 2


@manifest("plain")
def negative_extent(m: Manifest) -> None:
    m["inputs"][0]["shape"] = [-4, -4]


@manifest("plain")
def negative_count(m: Manifest) -> None:
    m["steps"][0]["grid"][0] = ["sub", 0, 1]


@manifest("everything")
def slice_beyond_its_axis(m: Manifest) -> None:
    m["outputs"][0]["slices"][1]["start"] = 3


@manifest("everything")
def copy_beyond_its_buffer(m: Manifest) -> None:
    m["steps"][2]["bytes"] = ["mul", "$batch size", 12]


@manifest("everything")
def copy_of_odd_bytes(m: Manifest) -> None:
    m["steps"][2]["bytes"] = 6


@manifest("everything")
def copy_into_a_weight(m: Manifest) -> None:
    m["steps"][9].update(source=5, destination=7)


@manifest("everything")
def block_leaves_its_entry(m: Manifest) -> None:
    m["steps"][5]["body"] = 6


@manifest("everything")
def block_leaves_its_block(m: Manifest) -> None:
    m["steps"][6]["body"] = 4


@manifest("everything")
def entries_share_steps(m: Manifest) -> None:
    m["entries"][1]["steps"] = [10, 2]


@manifest("everything")
def blocks_nested_9_deep(m: Manifest) -> None:
    launch = m["steps"][0]
    loop = {"op": "loop", "condition": 3, "bound": 2}
    m["steps"] = [{**loop, "body": 9 - depth} for depth in range(9)] + [launch, launch]
    m["entries"][0]["steps"] = [0, 10]
    m["entries"][1]["steps"] = [10, 1]


@manifest("plain")
def golden_beyond_its_file(m: Manifest) -> None:
    m["golden"][0]["outputs"][0]["offset"] = 2**20


@manifest("plain")
def golden_stride_that_does_not_fit(m: Manifest) -> None:
    m["golden"][0]["outputs"][0]["stride"] = 2


@manifest("plain")
def golden_range_upside_down(m: Manifest) -> None:
    m["golden"][0]["inputs"][0].update(min=1, max=0)


# --- overlaps and requirements -----------------------------------------------------------------


@manifest("plain")
def launch_reads_what_it_writes(m: Manifest) -> None:
    m["buffers"][1]["offset"] = 0


@manifest("plain")
def launch_binds_one_buffer_twice(m: Manifest) -> None:
    m["steps"][0]["buffers"][2] = 0


@manifest("everything")
def segments_overlap(m: Manifest) -> None:
    m["weights"][1]["segments"][0]["offset"] = 0


@manifest("everything")
def kernels_overlap(m: Manifest) -> None:
    m["kernels"][1]["offset"] -= 2


@manifest("everything")
def inputs_overlap(m: Manifest) -> None:
    m["buffers"][3]["offset"] = 256


@manifest("everything")
def state_overlaps_an_output(m: Manifest) -> None:
    m["buffers"][4].update(arena=1, offset=0)


@manifest("everything")
def copy_onto_itself(m: Manifest) -> None:
    m["steps"][10].update(source=2, source_offset=0)


@manifest("plain")
def more_bindings_than_required(m: Manifest) -> None:
    m["requirements"]["bindings"] = 2


@manifest("plain")
def more_threads_than_required(m: Manifest) -> None:
    m["requirements"]["invocations"] = 32


@manifest("everything")
def more_workgroups_at_the_maximum(m: Manifest) -> None:
    m["requirements"]["workgroups"] = 4


@manifest("plain")
def arena_bound_read(m: Manifest) -> None:
    m["kernels"][0]["bindings"][0]["access"] = "read"


# --- files -------------------------------------------------------------------------------------


@files("plain")
def no_weights(folder: Path) -> None:
    (folder / "weights-00000.bin").unlink()


@files("plain")
def cut_weights(folder: Path) -> None:
    path = folder / "weights-00000.bin"
    path.write_bytes(path.read_bytes()[:-1])


@files("plain")
def longer_weights(folder: Path) -> None:
    path = folder / "weights-00000.bin"
    path.write_bytes(path.read_bytes() + b"\0")


@files("plain")
def bit_in_the_weights(folder: Path) -> None:
    path = folder / "weights-00000.bin"
    content = bytearray(path.read_bytes())
    content[17] ^= 4
    path.write_bytes(content)


@files("plain")
def bit_in_the_kernels(folder: Path) -> None:
    path = folder / "kernels.wgsl"
    path.write_text(path.read_text("ascii").replace("scale", "scalf"), "ascii")


@text("plain")
def bit_in_a_hash(t: str) -> str:
    def flip(match: re.Match[str]) -> str:
        return match[1] + ("1" if match[2] == "0" else "0")

    return re.sub(r'("name":"weights-00000.bin","sha256":")(.)', flip, t)


@files("plain")
def weights_are_a_link(folder: Path) -> None:
    (folder / "weights-00000.bin").rename(folder / "elsewhere.bin")
    (folder / "weights-00000.bin").symlink_to("elsewhere.bin")


@files("plain")
def weights_are_a_folder(folder: Path) -> None:
    (folder / "weights-00000.bin").unlink()
    (folder / "weights-00000.bin").mkdir()


@files("plain")
def weights_are_a_pipe(folder: Path) -> None:
    (folder / "weights-00000.bin").unlink()
    os.mkfifo(folder / "weights-00000.bin")


@files("plain")
def kernel_that_is_not_ascii(folder: Path) -> None:
    import hashlib

    path = folder / "kernels.wgsl"
    content = path.read_bytes().replace(b"scale", b"sc\xc3\xa9e")
    path.write_bytes(content)
    manifest_path = folder / "manifest.json"
    value = json.loads(manifest_path.read_text("ascii"))
    record = next(item for item in value["files"] if item["name"] == path.name)
    record["sha256"] = hashlib.sha256(content).hexdigest()
    manifest_path.write_text(spell(value), "ascii")


# --- images ------------------------------------------------------------------------------------


@manifest("pictures")
def sound_images(m: Manifest) -> None:
    pass


@manifest("pictures")
def sound_images_none(m: Manifest) -> None:
    m["images"] = []


@manifest("pictures")
def sound_images_of_all_bytes(m: Manifest) -> None:
    m["images"][0].update(width=6, height=3, pitch=96)
    m["requirements"].update(image_width=7)


@manifest("plain")
def sound_limits_without_images(m: Manifest) -> None:
    m["requirements"]["image_width"] = "free"


@manifest("pictures")
def images_unlisted(m: Manifest) -> None:
    m["features"].remove("images")


@manifest("plain")
def images_without_the_feature(m: Manifest) -> None:
    m["images"] = []


@manifest("pictures")
def images_missing(m: Manifest) -> None:
    del m["images"]


@manifest("pictures")
def images_no_limits(m: Manifest) -> None:
    del m["requirements"]["image_height"]


@manifest("pictures")
def images_no_array(m: Manifest) -> None:
    m["images"] = {}


@manifest("pictures")
def image_with_depth(m: Manifest) -> None:
    m["images"][0]["depth"] = 1


@manifest("pictures")
def image_of_integers(m: Manifest) -> None:
    m["images"][0]["dtype"] = "int32"


@manifest("pictures")
def image_of_no_width(m: Manifest) -> None:
    m["images"][0]["width"] = 0


@manifest("pictures")
def image_too_high(m: Manifest) -> None:
    m["images"][0]["height"] = 2**20 + 1


@manifest("pictures")
def image_of_no_buffer(m: Manifest) -> None:
    m["images"][1]["buffer"] = 7


@manifest("pictures")
def image_of_buffer_minus_1(m: Manifest) -> None:
    m["images"][0]["buffer"] = -1


@manifest("pictures")
def images_of_one_buffer(m: Manifest) -> None:
    m["images"][1] = {**m["images"][0]}


@manifest("pictures")
def images_in_another_order(m: Manifest) -> None:
    m["images"].reverse()


@manifest("pictures")
def image_with_rows_of_odd_bytes(m: Manifest) -> None:
    m["images"][0]["pitch"] = 92


@manifest("pictures")
def image_with_rows_that_overlap(m: Manifest) -> None:
    m["images"][0]["pitch"] = 64


@manifest("pictures")
def image_with_rows_of_zero_bytes(m: Manifest) -> None:
    m["images"][0]["pitch"] = 0


@manifest("pictures")
def image_beyond_its_buffer(m: Manifest) -> None:
    m["images"][0]["height"] = 4


@manifest("pictures")
def image_with_rows_beyond_53_bits(m: Manifest) -> None:
    m["images"][0].update(height=2**20, pitch=2**52)


@manifest("pictures")
def image_is_an_input(m: Manifest) -> None:
    m["inputs"][0]["buffer"] = 5


@manifest("pictures")
def image_is_an_output(m: Manifest) -> None:
    m["outputs"][0]["buffer"] = 5


@manifest("pictures")
def image_is_a_state(m: Manifest) -> None:
    m["states"][0]["buffer"] = 5


@manifest("pictures")
def image_is_copied(m: Manifest) -> None:
    m["steps"][2]["source"] = 5


@manifest("pictures")
def image_of_a_weight_is_copied(m: Manifest) -> None:
    m["steps"][2]["source"] = 6


@manifest("pictures")
def image_is_copied_to(m: Manifest) -> None:
    m["steps"][2]["destination"] = 5


@manifest("pictures")
def image_is_a_condition(m: Manifest) -> None:
    m["steps"][3]["condition"] = 5


@manifest("pictures")
def image_wider_than_required(m: Manifest) -> None:
    m["requirements"]["image_width"] = 4


@manifest("pictures")
def image_higher_than_required(m: Manifest) -> None:
    m["requirements"]["image_height"] = 7


# --- variants ----------------------------------------------------------------------------------


@manifest("variants")
def sound_variants(m: Manifest) -> None:
    pass


@files("variants")
def sound_variants_without_the_others_files(folder: Path) -> None:
    """What is not picked is not read."""
    (folder / "manifest-00001.json").unlink()
    (folder / "kernels-00001.wgsl").unlink()


@manifest("variants")
def sound_variants_that_require_nothing(m: Manifest) -> None:
    m["variant"]["requires"] = []
    m["variants"][0]["requires"] = []


@manifest("variants")
def variants_unlisted(m: Manifest) -> None:
    m["features"].remove("variants")


@manifest("plain")
def variants_without_the_feature(m: Manifest) -> None:
    m["variant"] = {"name": "a", "requires": []}


@manifest("variants")
def variants_missing(m: Manifest) -> None:
    del m["variants"]


@manifest("variants")
def variant_missing(m: Manifest) -> None:
    del m["variant"]


@manifest("variants")
def variants_none(m: Manifest) -> None:
    m["variants"] = []


@manifest("variants")
def variants_too_many(m: Manifest) -> None:
    m["variants"] *= 9


@manifest("variants")
def variants_no_array(m: Manifest) -> None:
    m["variants"] = m["variants"][0]


@manifest("variants")
def variant_with_an_unknown_key(m: Manifest) -> None:
    m["variants"][0]["file"] = "elsewhere.json"


@manifest("variants")
def variant_without_a_hash(m: Manifest) -> None:
    m["variants"][0]["sha256"] = ""


@manifest("variants")
def variant_with_a_name_that_is_no_word(m: Manifest) -> None:
    m["variant"]["name"] = "../avx2"


@manifest("variants")
def variant_that_requires_33_words(m: Manifest) -> None:
    m["variant"]["requires"] = ["avx2"] * 33


@manifest("variants")
def variant_that_requires_a_number(m: Manifest) -> None:
    m["variants"][0]["requires"] = [2]


def make(out: Path) -> None:
    """Write every attack into `out/NAME`, and the table of what must happen."""
    out.mkdir(parents=True, exist_ok=True)
    bases = {}
    for name in ("plain", "everything", "pictures", "variants"):
        variants = programs.variants() if name == "variants" else []
        program = variants[-1].program if variants else getattr(programs, name)()
        bases[name] = out / f".{name}"
        bases[name].mkdir()
        cases = programs.goldens(program)
        write(program, bases[name], goldens=cases, tool="tinyedge test", variants=variants)
    for name, (base, attack) in ATTACKS.items():
        shutil.copytree(bases[base], out / name)
        attack(out / name)
    for folder in bases.values():
        shutil.rmtree(folder)
    shutil.copyfile(EXPECTED, out / "expected.json")


if __name__ == "__main__":
    make(Path(sys.argv[1]))
