"""Compares a bill of materials with the schema of its format; ends with what does not fit.

usage: check_sbom.py FILE
"""

import sys

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

with open(sys.argv[1], encoding="utf-8") as f:
    wrong = JsonStrictValidator(SchemaVersion.V1_5).validate_str(f.read())
if wrong:
    sys.exit(f"check_sbom.py: {sys.argv[1]} is no CycloneDX 1.5: {str(wrong)[:2000]}")
