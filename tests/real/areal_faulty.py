"""areal_sft.py with the faults that FAULTS names (areal_faults.py), and each step when the save before it was copied."""

import areal_faults
import areal_sft


def main(argv=None):
    areal_faults.arm_from_env()
    areal_sft.main(argv)


if __name__ == "__main__":
    main()
