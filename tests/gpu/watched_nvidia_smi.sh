#!/bin/bash
# Wraps nvidia-smi on PATH. NVIDIA_SMI is the real one; NVIDIA_SMI_LOG gets a line per call: begin, end, arguments, first line of the answer.
# A call that repeats its query has no end to record.
[[ " $* " != *" --loop="* ]] || exec "$NVIDIA_SMI" "$@"
began=$EPOCHREALTIME
said=$("$NVIDIA_SMI" "$@")
code=$?
printf '%s\t%s\t%s\t%s\n' "${began/,/.}" "${EPOCHREALTIME/,/.}" "$*" "${said%%$'\n'*}" >>"$NVIDIA_SMI_LOG"
printf '%s\n' "$said"
exit $code
