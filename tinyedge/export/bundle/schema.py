"""The records of a manifest, one row a field: what the readers' tables and bundle.md's are made of.

`python -m tinyedge.export.bundle.tables` writes, from these rows, the tables of the readers in
JavaScript and C and those of the document; Python's checker reads the rows themselves. A field is
added here, where the exporter writes it (writing.py), and where a runtime uses it; then
`npm --prefix web run build` makes the file of JavaScript that bundles carry, and a case of what it
must not hold goes to tests/bundles/attacks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Union

LIMIT = 2**53 - 1  # of integers
KEYS = 64  # of a record that is open to keys of others

# What a reader may have to implement, to be listed where it is used; and when it is.
FEATURES: Mapping[str, str] = {
    "blocks": "files have hashes of their parts",
    "count": "an output has a count",
    "entries": "there is more than one",
    "fallback": "there is a program for WebAssembly",
    "images": "a kernel takes a buffer as an image",
    "loop": "a step is a loop",
    "repacks": "weights of a program for WebAssembly are in another order",
    "state": "there is one",
    "symbols": "there is one",
    "variants": "there are programs for other devices",
}
# Those that the reader in JavaScript does not know; repacks are for its wasm.js alone.
NOT_IN_SCRIPT = ("images", "repacks", "variants")
# Those that the reader in C does not know: it runs no bundles for webgpu.
NOT_IN_C = ("blocks", "fallback", "repacks")
# The targets of programs that pages run: weights are used as they arrive, so blocks have hashes.
IN_PAGES = ("webgpu", "wasm")

# Operators of expressions, of two operands each, in the order of C's tokens.
OPERATORS = ("add", "mul", "sub", "floordiv", "ceildiv", "mod", "min", "max")

# What each element type may be kept as in a buffer; the first is itself.
STORAGE: Mapping[str, tuple[str, ...]] = {
    "bool": ("bool", "uint8", "int32", "uint32"),
    "int8": ("int8", "int16", "int32"),
    "int16": ("int16", "int32"),
    "int32": ("int32",),
    "int64": ("int64", "int32"),
    "uint8": ("uint8", "uint16", "uint32", "int32"),
    "uint16": ("uint16", "uint32", "int32"),
    "uint32": ("uint32",),
    "uint64": ("uint64", "uint32"),
    "float16": ("float16", "float32"),
    "float32": ("float32", "float16"),
    "float64": ("float64", "float32", "float16"),
}


@dataclass(frozen=True)
class Integer:
    """name: in the tables of C and, where it is used more than once, of JavaScript."""

    name: str
    least: int = 0
    most: int = LIMIT
    says: str = ""  # in bundle.md; "": `int`, with its bounds


@dataclass(frozen=True)
class Text:
    name: str
    most: int
    least: int = 0
    pattern: str = ""  # of all of it, with `[A-Za-z0-9_]` and the like spelled out
    says: str = ""


@dataclass(frozen=True)
class Choice:
    name: str
    values: tuple[Union[str, bool], ...]


@dataclass(frozen=True)
class Special:
    """What the readers check by code of their own. name: of that in C; script: in JavaScript."""

    name: str
    script: str
    says: str


@dataclass(frozen=True)
class Array:
    name: str
    item: Kind
    most: int
    least: int = 0
    total: str = ""  # what C counts its elements as, to place them


@dataclass(frozen=True)
class Record:
    """Exactly these fields; where it is open, these at least."""

    name: str
    fields: tuple[Field, ...] = ()
    open: bool = False
    rule: str = ""  # a check of the whole: "storage", "input"


Kind = Union[Integer, Text, Choice, Special, Array, Record]


@dataclass(frozen=True)
class Field:
    """One key of a record."""

    key: str
    kind: Kind
    # what it means, for bundle.md; of fields within a root key mostly said there
    says: str = ""
    keep: str = ""  # where C keeps it: `record.member`, a number's place, ""; it is checked anyway
    feature: str = ""  # there where the manifest lists this one, and only then


INT = Integer("NUMBER")
INDEX = Integer("INDEX", -1, says="index")
IMAGE_LIMIT = Integer("IMAGE_LIMIT")
POSITIVE = Integer("POSITIVE", 1)
SIZE = Integer("SIZE", 0, 2**31 - 1)
STEP_SIZE = Integer("STEP_SIZE", 1, 2**31 - 1)
AXIS = Integer("AXIS", 0, 7)
ARENA_SIZE = Integer("ARENA_SIZE", 0, 2**40)
IMAGE_SIDE = Integer("IMAGE_SIDE", 1, 2**20)
SIDE = Integer("SIDE", 1, 2**16)
SEED = Integer("SEED", 0, 2**32 - 1)
REPEATS = Integer("REPEATS", 1, 1024)
GOLDEN_BOUND = Integer("GOLDEN_BOUND", -(2**31), 2**32 - 1)
INTEGERS = (
    INT, IMAGE_LIMIT, INDEX, POSITIVE, SIZE, STEP_SIZE, AXIS, ARENA_SIZE, IMAGE_SIDE, SIDE, SEED,
    REPEATS, GOLDEN_BOUND,
)  # fmt: skip

TEXT = Text("ANY_TEXT", 4096, says="string")
SHORT_TEXT = Text("SHORT_TEXT", 64, says="string of <= 64")
TARGET_TEXT = Text("TARGET_TEXT", 32, says="`[a-z][a-z0-9]{0,31}`")
NAME = Text("NAME", 1024, 1, says="name")
TYPE_WORD = Text("TYPE_WORD", 32, 1, "[a-z0-9_]*", "`[a-z0-9_]{1,32}`")
IDENTIFIER = Text("IDENTIFIER", 128, 1, "[A-Za-z_][A-Za-z0-9_]*", "`[A-Za-z_][A-Za-z0-9_]{0,127}`")
SHA256 = Text("SHA256", 64, 64, "[0-9a-f]*", "64 lower case hex digits")
TEXTS = (TEXT, SHORT_TEXT, TARGET_TEXT, NAME, TYPE_WORD, IDENTIFIER, SHA256)

FLAG = Choice("FLAG", (True, False))
UPDATE = Choice("UPDATE", ("replace", "shift"))
ACCESS = Choice("ACCESS", ("read", "read_write"))
IMAGE_DTYPE = Choice("IMAGE_DTYPE", ("float16", "float32"))
CHOICES = (FLAG, IMAGE_DTYPE, UPDATE, ACCESS)

DTYPE = Special("DECLARED", "DTYPE", "dtype")  # of STORAGE, or codes: `uint16:bfloat16`
STORAGE_TYPE = Special("DTYPE", "TYPE", "storage")
EXPRESSION = Special("EXPRESSION", "EXPRESSION", "expr")
STEP = Special("STEP", "STEP", "step")
FREE = Record("FREE", open=True)

TOKENS = 255  # of an expression
RANK = 8
SYMBOLS = 32
WORDS = 32  # that a variant requires
VARIANTS = 8
BINDINGS = 64
PORTS = 1024
BLOCKS = 32  # of a file of weights
AXES = 16  # of a repack

SHAPE = Array("SHAPE", EXPRESSION, RANK)

_RANGE = ("file", "offset", "bytes")


def _range(record: str, place: str = "") -> tuple[Field, ...]:
    """A part of a file: index into files, offset and bytes."""
    kinds = (INDEX, INT, INT)
    return tuple(
        Field(key, kind, keep=f"{record}.{place}{key}")
        for key, kind in zip(_RANGE, kinds, strict=True)
    )


RANGE = Record("RANGE", _range("range_record"))
SLICE = Record(
    "SLICE",
    (
        Field("name", NAME, keep="slice_record.name"),
        Field("axis", AXIS, keep="slice_record.axis"),
        Field("start", INT, keep="slice_record.start"),
        Field("size", INT, keep="slice_record.size"),
    ),
)
_TENSOR = (
    Field("name", NAME, keep="port_record.name"),
    Field("dtype", DTYPE, keep="0"),
    Field("storage", STORAGE_TYPE, keep="port_record.storage"),
    Field("shape", SHAPE, keep="port_record.rank"),
    Field("buffer", INDEX, keep="port_record.buffer"),
)
_PORT = (
    *_TENSOR,
    Field("slices", Array("SLICES", SLICE, 256, total="SLICES"), keep="port_record.first_slice"),
    Field("count", INDEX, keep="port_record.count"),
    Field("axis", AXIS, keep="port_record.axis"),
)
INPUT = Record("PORT", _PORT, rule="input")
OUTPUT = Record("PORT", _PORT, rule="storage")
STATE = Record(
    "STATE",
    (
        *_TENSOR,
        Field("initial", INDEX, keep="port_record.initial"),
        Field("update", UPDATE),
        Field("axis", AXIS),
    ),
    rule="storage",
)
SYMBOL = Record(
    "SYMBOL",
    (
        Field("name", NAME, keep="symbol_record.name"),
        Field("min", SIZE, keep="symbol_record.min"),
        Field("max", SIZE, keep="symbol_record.max"),
        Field("step", STEP_SIZE, keep="symbol_record.step"),
    ),
)
LISTED = Array("PORTS", INDEX, PORTS, total="LISTED")
ENTRY = Record(
    "ENTRY",
    (
        Field("name", NAME, keep="entry_record.name"),
        Field("inputs", LISTED, keep="entry_record.first_input"),
        Field("outputs", LISTED, keep="entry_record.first_output"),
        Field("steps", Array("RANGE_OF_STEPS", INT, 2, 2), keep="entry_record.first"),
    ),
)
ARENA = Record("ARENA", (Field("bytes", ARENA_SIZE, keep="0"),))
BUFFER = Record(
    "BUFFER",
    (
        Field("arena", INDEX, keep="buffer_record.arena"),
        Field("weight", INDEX, keep="buffer_record.weight"),
        Field("offset", INT, keep="buffer_record.offset"),
        Field("bytes", INT, keep="buffer_record.bytes"),
    ),
)
IMAGE = Record(
    "IMAGE",
    (
        Field("buffer", INDEX, keep="image_record.buffer"),
        Field("dtype", IMAGE_DTYPE, keep="image_record.dtype"),
        Field("height", IMAGE_SIDE, keep="image_record.height"),
        Field("pitch", INT, keep="image_record.pitch"),
        Field("width", IMAGE_SIDE, keep="image_record.width"),
    ),
)
WEIGHT = Record(
    "WEIGHT",
    (
        Field("name", NAME, keep="weight_record.name"),
        Field("dtype", DTYPE),
        Field("storage", STORAGE_TYPE),
        Field("shape", Array("WEIGHT_SHAPE", INT, RANK)),
        Field("bytes", INT, keep="weight_record.bytes"),
        Field(
            "segments",
            Array("SEGMENTS", RANGE, 4096, 1, "SEGMENTS"),
            keep="weight_record.first_segment",
        ),
    ),
)
BINDING = Record("BINDING", (Field("access", ACCESS, keep="0"), Field("dtype", TYPE_WORD)))
KERNEL = Record(
    "KERNEL",
    (
        *_range("kernel_record", "range."),
        Field("entry", IDENTIFIER, keep="kernel_record.entry"),
        Field("workgroup", Array("WORKGROUP", SIDE, 3, 3), keep="kernel_record.workgroup"),
        Field(
            "bindings",
            Array("BINDINGS", BINDING, BINDINGS, 1, "BINDINGS"),
            keep="kernel_record.first_binding",
        ),
        Field("moves", Array("MOVES", FREE, 256)),
        Field("symbols", FLAG, keep="kernel_record.symbols"),
    ),
)
STEPS = {  # in the order of C's te_op
    "launch": Record(
        "LAUNCH",
        (
            Field("op", TEXT),
            Field("kernel", INDEX, keep="step_record.kernel"),
            Field(
                "buffers",
                Array("BOUND", INDEX, BINDINGS, total="BOUND"),
                keep="step_record.first_buffer",
            ),
            Field("grid", Array("GRID", EXPRESSION, 3, 3), keep="step_record.sizes"),
            Field("flops", INT, keep="step_record.flops"),
            Field("nodes", Array("NODES", TEXT, 1024), keep="step_record.nodes"),
        ),
    ),
    "copy": Record(
        "COPY",
        (
            Field("op", TEXT),
            Field("source", INDEX, keep="step_record.source"),
            Field("source_offset", INT, keep="step_record.source_offset"),
            Field("destination", INDEX, keep="step_record.destination"),
            Field("destination_offset", INT, keep="step_record.destination_offset"),
            Field("bytes", EXPRESSION, keep="step_record.sizes"),
        ),
    ),
    "loop": Record(
        "LOOP",
        (
            Field("op", TEXT),
            Field("condition", INDEX, keep="step_record.condition"),
            Field("bound", STEP_SIZE, keep="step_record.bound"),
            Field("body", INT, keep="step_record.body"),
        ),
    ),
}
GOLDEN_INPUT = Record(
    "GOLDEN_INPUT",
    (
        *_range("golden_input", "range."),
        Field("min", GOLDEN_BOUND, keep="golden_input.min"),
        Field("max", GOLDEN_BOUND, keep="golden_input.max"),
    ),
)
GOLDEN_OUTPUT = Record(
    "GOLDEN_OUTPUT",
    (*_range("golden_output", "range."), Field("stride", POSITIVE, keep="golden_output.stride")),
)
GOLDEN = Record(
    "GOLDEN",
    (
        Field("entry", INDEX, keep="golden_record.entry"),
        Field("seed", SEED, keep="golden_record.seed"),
        Field("steps", REPEATS, keep="golden_record.steps"),
        Field(
            "symbols",
            Array("GOLDEN_SYMBOLS", SIZE, SYMBOLS, total="GOLDEN_SYMBOLS"),
            keep="golden_record.first_symbol",
        ),
        Field("tolerance", INT, keep="golden_record.tolerance"),
        Field("made", TEXT),
        Field(
            "inputs",
            Array("GOLDEN_INPUTS", GOLDEN_INPUT, PORTS, total="GOLDEN_INPUTS"),
            keep="golden_record.first_input",
        ),
        Field(
            "outputs",
            Array("GOLDEN_OUTPUTS", GOLDEN_OUTPUT, PORTS, total="GOLDEN_OUTPUTS"),
            keep="golden_record.first_output",
        ),
    ),
)
FILE = Record(
    "FILE_",
    (
        Field("name", TEXT, keep="file_record.name"),
        Field("bytes", INT, keep="file_record.bytes"),
        Field("sha256", SHA256, keep="file_record.sha256"),
    ),
)
REQUIREMENTS = Record(
    "REQUIREMENTS",
    (
        Field("bindings", INT, "most storage bindings in a launch", "TE_BINDINGS"),
        Field("binding_bytes", INT, "largest bound buffer", "TE_BINDING_BYTES"),
        Field("buffer_bytes", INT, "largest buffer that is allocated", "TE_BUFFER_BYTES"),
        Field("image_height", IMAGE_LIMIT, "most pixels", "TE_IMAGE_HEIGHT", feature="images"),
        Field("image_width", IMAGE_LIMIT, "most pixels", "TE_IMAGE_WIDTH", feature="images"),
        Field("invocations", INT, "most threads in a workgroup", "TE_INVOCATIONS"),
        Field("workgroups", INT, "largest count in one dimension", "TE_WORKGROUPS"),
        Field("workgroup_bytes", INT, "most shared memory", "TE_WORKGROUP_BYTES"),
    ),
    open=True,
)
_VARIANT = (
    Field("name", TYPE_WORD),
    Field("requires", Array("REQUIRES", TYPE_WORD, WORDS)),
)
VARIANT = Record("VARIANT", _VARIANT)
_FILE = (Field("bytes", INT), Field("sha256", SHA256))
OTHER = Record("OTHER", (*_VARIANT, *_FILE))
FALLBACK = Record("FALLBACK", _FILE)


def _all(name: str, item: Kind, most: int, least: int = 0) -> Array:
    """An array of the root, of which C has an array of its own."""
    return Array(name, item, most, least, name)


ROOT = Record(
    "ROOT",
    (
        Field("format", TEXT, '`"tinyedge-bundle"`'),
        Field("version", INT, "1"),
        Field(
            "features",
            Array("FEATURES", SHORT_TEXT, 64),
            "strictly increasing: what a reader must implement, see below",
        ),
        Field("tool", SHORT_TEXT, "maker and its version"),
        Field(
            "target", TARGET_TEXT,
            "`webgpu`, `qcom`, `cuda`, `cpu` so far; a runtime refuses what it does not serve",
            "model.target",
        ),
        Field("options", FREE, "what the bundle was exported with"),
        Field(
            "requirements", REQUIREMENTS,
            "of a device; `image_height` and `image_width` with the feature `images`",
            "model.requirements",
        ),
        Field("peak_bytes", INT, "arenas plus weights"),
        Field(
            "symbols", _all("SYMBOLS", SYMBOL, SYMBOLS),
            "min <= max; values are min, min+step, .. max",
        ),
        Field("inputs", _all("INPUTS", INPUT, PORTS), "count is -1, and there are no slices"),
        Field(
            "outputs", _all("OUTPUTS", OUTPUT, PORTS),
            "count: index of the output (integer, one element) that holds the size of `axis` after "
            "a run, or -1; `shape` then says the most it can be, and the elements lie without gaps "
            "as the true shape has them",
        ),
        Field(
            "states", _all("STATES", STATE, PORTS), "initial: weight index, or -1 for zeros"
        ),
        Field(
            "entries", _all("ENTRIES", ENTRY, 64, 1),
            "steps: first and count; entries[0] is the default",
        ),
        Field("arenas", _all("ARENAS", ARENA, 64), "a positive multiple of 256"),
        Field("buffers", _all("BUFFERS", BUFFER, 262144), "one of arena and weight is -1"),
        Field(
            "images", _all("IMAGES", IMAGE, 262144),
            "only and always with the feature `images`: the buffers that kernels use as images, "
            "see below",
            feature="images",
        ),
        Field("weights", _all("WEIGHTS", WEIGHT, 65536), "file: index into files"),
        Field(
            "repacks",
            Array("REPACKS", Array("AXES", Array("PLACES", POSITIVE, 3, 3), AXES), 65536),
            "only and always with the feature `repacks`: of each weight the axes (places, used, "
            "stride) of what its words are moved by, see below; none: they stay",
            feature="repacks",
        ),
        Field("prelude", RANGE, "file: index into files", "model.prelude"),
        Field(
            "kernels", _all("KERNELS", KERNEL, 16384),
            "entry: the entry point, unique; file: index into files; dtype: "
            "informative, but for `picture`, see below",
        ),
        Field("steps", _all("STEPS", STEP, 262144), "see below"),
        Field("golden", Array("GOLDENS", GOLDEN, 64, 0, "GOLDENS"), "see Goldens"),
        Field(
            "files", _all("FILES", FILE, 4096),
            "names strictly increasing: `kernels`, `weights` or `golden`, then optionally `-` and "
            "5 digits, then `.` and 1 to 8 of `a-z0-9`; at most 32 MiB for weights and golden, "
            "64 MiB for kernels",
        ),
        Field(
            "blocks", Array("BLOCKS", Array("HASHES", SHA256, BLOCKS), 4096),
            "only and always with the feature `blocks`: of each file of weights the SHA-256 of "
            "each MiB, the last one shorter; of other files none",
            feature="blocks",
        ),
        Field(
            "fallback", FALLBACK,
            "only and always with the feature `fallback`: `manifest-00001.json`, of a program for "
            "WebAssembly, see below",
            feature="fallback",
        ),
        Field(
            "variant", VARIANT,
            "only and always with the feature `variants`, as is the next: the name of the program "
            "in this manifest, and what it requires of a device, see below",
            feature="variants",
        ),
        Field(
            "variants", Array("VARIANTS", OTHER, VARIANTS, 1),
            "the others, the best first: `manifest-00001.json` and so on",
            feature="variants",
        ),
    ),
)  # fmt: skip
