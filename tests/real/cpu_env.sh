# Environment under which unmodified verl trains on CPU ranks. Source it: it only exports.
real_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export PYTHONPATH="$real_dir${PYTHONPATH:+:$PYTHONPATH}"
export VERL_USE_EXTERNAL_MODULES=verl_cpu_platform VERL_PLATFORM=cpu VERL_ENGINE_DEVICE=cuda
export OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false
unset real_dir
