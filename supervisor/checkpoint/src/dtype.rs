//! Element types of tensors, as torch and safetensors name them.

use serde::{Deserialize, Serialize};

macro_rules! dtypes {
    ($($(#[$doc:meta])* $name:ident, $word:literal, $bytes:literal;)*) => {
        /// The type of a tensor's elements.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Dtype {
            $($(#[$doc])* #[serde(rename = $word)] $name,)*
        }

        impl Dtype {
            /// Returns its name in torch.
            #[must_use]
            pub fn word(self) -> &'static str {
                match self { $(Self::$name => $word,)* }
            }

            /// Returns the bytes of one element.
            #[must_use]
            pub fn size(self) -> u64 {
                match self { $(Self::$name => $bytes,)* }
            }

            /// Finds a type by its name in torch (`float32`), without a module.
            #[must_use]
            pub fn from_torch(name: &str) -> Option<Self> {
                match name { $($word => Some(Self::$name),)* _ => Self::from_alias(name) }
            }
        }
    };
}

dtypes! {
    F64, "float64", 8;
    F32, "float32", 4;
    F16, "float16", 2;
    /// Brain float.
    Bf16, "bfloat16", 2;
    /// 8-bit float, 4 exponent bits, no infinities.
    F8E4M3fn, "float8_e4m3fn", 1;
    /// 8-bit float, 5 exponent bits.
    F8E5M2, "float8_e5m2", 1;
    /// 8-bit float, 4 exponent bits, no negative zero.
    F8E4M3fnuz, "float8_e4m3fnuz", 1;
    /// 8-bit float, 5 exponent bits, no negative zero.
    F8E5M2fnuz, "float8_e5m2fnuz", 1;
    /// 8-bit scale, exponent only.
    F8E8M0fnu, "float8_e8m0fnu", 1;
    /// Two 4-bit floats in a byte.
    F4E2M1x2, "float4_e2m1fn_x2", 1;
    /// Complex of two 64-bit floats.
    C128, "complex128", 16;
    /// Complex of two 32-bit floats.
    C64, "complex64", 8;
    /// Complex of two 16-bit floats.
    C32, "complex32", 4;
    I64, "int64", 8;
    I32, "int32", 4;
    I16, "int16", 2;
    I8, "int8", 1;
    U64, "uint64", 8;
    U32, "uint32", 4;
    U16, "uint16", 2;
    U8, "uint8", 1;
    /// Boolean in a byte.
    Bool, "bool", 1;
    /// Quantized signed byte.
    Qi8, "qint8", 1;
    /// Quantized byte.
    Qu8, "quint8", 1;
    /// Quantized 32-bit integer.
    Qi32, "qint32", 4;
    /// Two quantized 4-bit integers in a byte.
    Qu4x2, "quint4x2", 1;
    /// Four quantized 2-bit integers in a byte.
    Qu2x4, "quint2x4", 1;
    /// Raw bits in a byte.
    Bits8, "bits8", 1;
    /// Raw bits in two bytes.
    Bits16, "bits16", 2;
}

impl Dtype {
    fn from_alias(name: &str) -> Option<Self> {
        Some(match name {
            "double" => Self::F64,
            "float" => Self::F32,
            "half" => Self::F16,
            "long" => Self::I64,
            "int" => Self::I32,
            "short" => Self::I16,
            "cfloat" => Self::C64,
            "cdouble" => Self::C128,
            "chalf" => Self::C32,
            _ => return None,
        })
    }

    /// Finds the type of a typed storage class such as `FloatStorage`; `UntypedStorage` counts bytes.
    #[must_use]
    pub fn from_storage(class: &str) -> Option<Self> {
        Some(match class {
            "DoubleStorage" => Self::F64,
            "FloatStorage" => Self::F32,
            "HalfStorage" => Self::F16,
            "BFloat16Storage" => Self::Bf16,
            "LongStorage" => Self::I64,
            "IntStorage" => Self::I32,
            "ShortStorage" => Self::I16,
            "CharStorage" => Self::I8,
            "ByteStorage" | "UntypedStorage" => Self::U8,
            "BoolStorage" => Self::Bool,
            "ComplexDoubleStorage" => Self::C128,
            "ComplexFloatStorage" => Self::C64,
            "QInt8Storage" => Self::Qi8,
            "QUInt8Storage" => Self::Qu8,
            "QInt32Storage" => Self::Qi32,
            "QUInt4x2Storage" => Self::Qu4x2,
            "QUInt2x4Storage" => Self::Qu2x4,
            _ => return None,
        })
    }

    /// Finds a type by its name in a safetensors header (`F32`), with the bits of one element.
    #[must_use]
    pub fn from_safetensors(name: &str) -> Option<(Self, u64)> {
        let d = match name {
            "F64" => Self::F64,
            "F32" => Self::F32,
            "F16" => Self::F16,
            "BF16" => Self::Bf16,
            "F8_E4M3" => Self::F8E4M3fn,
            "F8_E5M2" => Self::F8E5M2,
            "F8_E4M3FNUZ" => Self::F8E4M3fnuz,
            "F8_E5M2FNUZ" => Self::F8E5M2fnuz,
            "F8_E8M0" => Self::F8E8M0fnu,
            "F4" => return Some((Self::F4E2M1x2, 4)),
            "F6_E2M3" | "F6_E3M2" => return Some((Self::Bits8, 6)),
            "C64" => Self::C64,
            "I64" => Self::I64,
            "I32" => Self::I32,
            "I16" => Self::I16,
            "I8" => Self::I8,
            "U64" => Self::U64,
            "U32" => Self::U32,
            "U16" => Self::U16,
            "U8" => Self::U8,
            "BOOL" => Self::Bool,
            _ => return None,
        };
        Some((d, d.size() * 8))
    }
}
