//! Pieces that mean something to the readers.

/// Signatures and names in archives.
#[rustfmt::skip]
pub(crate) const ZIP: &[&[u8]] = &[
    b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07", b"PK\x07\x08",
    b"archive/data.pkl", b"archive/data/0", b"/constants.pkl", b"/version", b"/byteorder", b"big",
    b"\x01\x00\x10\x00", b"FB", b"\xff\xff\xff\xff", b"\x80\x02}.", b"cos\nsystem\n",
];

/// Opcodes, with the arguments they take.
#[rustfmt::skip]
pub(crate) const PICKLE: &[&[u8]] = &[
    b"(", b".", b"0", b"1", b"2", b"N", b"\x88", b"]", b")", b"}", b"\x8f", b"a", b"e", b"s", b"u", b"t", b"l",
    b"d", b"\x85", b"\x86", b"\x87", b"\x90", b"\x91", b"\x94", b"q\x00", b"h\x00", b"r\xff\xff\xff\xff",
    b"j\x00\x04\x00\x00", b"p3\n", b"g3\n", b"K\x05", b"J\xff\xff\xff\xff", b"M\x00\x01", b"\x8a\x09aaaaaaaaa",
    b"\x8b\xff\xff\xff\xff", b"X\x01\x00\x00\x00a", b"X\xff\xff\xff\xff", b"\x8c\x07storage", b"\x8c\x010",
    b"\x8c\x03cpu", b"ctorch\nFloatStorage\n", b"ctorch\nSize\n", b"ctorch._utils\n_rebuild_tensor_v2\n",
    b"ccollections\nOrderedDict\n", b"cbuiltins\ngetattr\n", b"cbuiltins\ndict\n",
    b"ctorch._tensor\n_rebuild_from_type_v2\n", b"ctorch._utils\n_rebuild_wrapper_subclass\n",
    b"cmy.module\nfunction\n", b"cmy.module\nClass\n", b"ctorch.distributed.checkpoint.metadata\nMetadata\n",
    b"ctorch.distributed.checkpoint.metadata\nTensorStorageMetadata\n",
    b"ctorch.distributed.checkpoint.filesystem\n_StorageInfo\n", b"\x8c\x0c__setstate__",
    b"\x8c\x0d_local_tensor", b"\x8c\x05_spec", b"Q", b"P1\n", b"R", b"b", b"\x81", b"\x92", b"\x93",
    b"\x82\x01", b"o", b"ia\nb\n", b"S'x'\n", b"V\\u0041\n", b"F1e400\n", b"G\x7f\xf8\x00\x00\x00\x00\x00\x00",
    b"L99999999999999999999L\n", b"\x95\xff\xff\xff\xff\xff\xff\xff\xff",
    b"\x8e\xff\xff\xff\xff\xff\xff\xff\x7f", b"\x80\x04",
];

/// Pieces of JSON, and keys of the files that are JSON.
#[rustfmt::skip]
pub(crate) const JSON: &[&[u8]] = &[
    b"{", b"}", b"[", b"]", b":", b",", b"\"", b"\\u0000", b"\\ud800", b"null", b"true", b"-1", b"1e999",
    b"18446744073709551615", b"18446744073709551616", b"0.1", b"\n", b"\0", b"\"dtype\":\"F32\"",
    b"\"shape\":[2]", b"\"data_offsets\":[0,8]", b"\"__metadata__\":{}", b"\"weight_map\":{\"a\":\"b\"}",
    b"\"total_size\"", b"\"world_size\":2", b"\"FSDP_version\":1", b"\"../x\"", b"\"/x\"", b"\"v\":1",
    b"\"seq\":2", b"\"crc\":0", b"\xff\xff\xff\xff\xff\xff\xff\x7f",
];

/// Characters that mean something in a configuration.
#[rustfmt::skip]
pub(crate) const YAML: &[&[u8]] = &[
    b"a", b": ", b"- ", b"\n", b"  ", b"[", b"]", b"{", b"}", b", ", b"&x ", b"*x", b"<<: ", b"!!int ", b"! ",
    b"|\n", b">+\n", b"'", b"\"", b"#", b"? ", b"---\n", b"...\n", b"%YAML 1.1\n", b"\t", b"1e", b"${",
    b"oc.env:", b"oc.select:a,", b"oc.decode:", b"oc.create:", b"\\", b"1:30", b"0x_1", b".inf", b"yes", b"~",
    b"???", b"defaults:\n", b"_self_", b"override ", b"optional ", b"@_global_", b"=== db/other\n",
    b"# @package ", b"${a}", b"${.b}", b"${..c}",
];

/// Characters that mean something in an override.
#[rustfmt::skip]
pub(crate) const HYDRA: &[&[u8]] = &[
    b"=", b"+", b"++", b"~", b"@", b".", b",", b":", b"[", b"]", b"{", b"}", b"(", b")", b"'", b"\"", b"\\",
    b"\\'", b" ", b"null", b"true", b"1e5", b"0x10", b"-inf", b"nan", b"${a.b}", b"choice(", b"range(1,2)",
    b"shuffle(", b"sort(", b"interval(", b"glob(*)", b"int(", b"json_str(", b"a/b", b"$", b"*", b"|", b"\n",
    b"\t",
];
