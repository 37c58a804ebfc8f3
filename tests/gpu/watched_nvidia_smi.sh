#!/bin/bash
# Stands before nvidia-smi on PATH, by its name: NVIDIA_SMI is the real one, NVIDIA_SMI_LOG gets a line a call: begin, end, arguments, first line of the answer.
# A question that is asked again and again has no end to be noted.
[[ " $* " != *" --loop="* ]] || exec "$NVIDIA_SMI" "$@"
began=$EPOCHREALTIME
said=$("$NVIDIA_SMI" "$@")
code=$?
printf '%s\t%s\t%s\t%s\n' "${began/,/.}" "${EPOCHREALTIME/,/.}" "$*" "${said%%$'\n'*}" >>"$NVIDIA_SMI_LOG"
printf '%s\n' "$said"
exit $code
