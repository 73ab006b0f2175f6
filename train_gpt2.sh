#!/usr/bin/env bash
# From nothing to a trained GPT and a sample of its text: environment, package, data, training, sample.
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
START=$PWD
source "$ROOT/.ci/environment.sh"

DATA_SETS="shakespeare owt"
OPTIONS="--device --batch_size --iterations --mixed_precision --fused --num_gpus --num_processes --log_wandb --resume
    --chinchilla --smoke --help"

usage() {
    cat <<'TEXT'
Trains a GPT and prints a sample of what it writes.

usage: bash train_gpt2.sh shakespeare|owt [OPTIONS]

data sets
  shakespeare         Tiny Shakespeare, character by character. Without a GPU: 4 layers, 4 heads, 128 wide,
                      context 64, batch 12, 2,000 iterations. With one: 6 layers, 6 heads, 384 wide,
                      context 256, batch 64, 5,000 iterations, dropout 0.2.
  owt                 OpenWebText with the GPT-2 (124M) of nanoGPT: context 1024, batch 12 times 40 accumulation
                      steps (shared out to the processes), 600,000 iterations. Meant for GPUs; the data takes
                      54 GB to fetch, 17 GB to keep.

options
  --device DEVICE     cpu, cuda or cuda:N; default: cuda where nvidia-smi finds a GPU, else cpu
  --batch_size N      sequences a step, of each process
  --iterations N      training steps
  --mixed_precision [fp16|bf16]
                      train in float16 (or bfloat16) with float32 master weights
  --fused             fail without fused kernels (Triton on a GPU, Numba on a CPU); by default they are used
                      if they are available
  --num_gpus N        number of GPUs, with one process each; default: 1
  --num_processes N   number of processes that share the cores of a CPU; default: 1
  --chinchilla        as many training steps as make 20 tokens for each parameter of the model
  --smoke             only three steps on random tokens, with their time and memory: needs no data
  --log_wandb         log to Weights & Biases as well
  --resume            continue from the last checkpoint in work_dir
  --help              this text

What it does: uses the active environment (venv or conda), else makes .venv; installs mytorch with what the job
needs; prepares data/shakespeare or data/openwebtext where it is missing; trains; saves to
work_dir/gpt2-small-shakespeare/ or work_dir/gpt2-base-owt/, with the loss curve as a picture; prints a sample
and the command that prints more.
TEXT
}

usage_error() {
    printf 'error: %s\n(see bash train_gpt2.sh --help)\n' "$*" >&2
    exit 2
}

parse_arguments() {
    DATA="" DEVICE="" BATCH_SIZE="" ITERATIONS="" NUM_GPUS="" NUM_PROCESSES="" RESUME="" SMOKE="" FLAGS=()
    while [ $# -gt 0 ]; do
        case $1 in
            --help | -h) usage; exit 0 ;;
            --device | --batch_size | --iterations | --num_gpus | --num_processes)
                [ $# -gt 1 ] || usage_error "$1 needs a value"
                set_option "$1" "$2"
                shift ;;
            --device=* | --batch_size=* | --iterations=* | --num_gpus=* | --num_processes=*)
                set_option "${1%%=*}" "${1#*=}" ;;
            --mixed_precision)
                if [[ ${2:--} = -* || " $DATA_SETS " = *" $2 "* ]]; then
                    FLAGS+=("$1")
                else
                    set_option "$1" "$2"
                    shift
                fi ;;
            --mixed_precision=*) set_option "${1%%=*}" "${1#*=}" ;;
            --fused | --log_wandb | --chinchilla) FLAGS+=("$1") ;;
            --smoke) SMOKE=1 ;;
            --resume) RESUME=1 ;;
            -*) usage_error "unknown option '$1'; there are: $OPTIONS" ;;
            *)
                [ -z "$DATA" ] || usage_error "one data set at a time, got '$DATA' and '$1'"
                case " $DATA_SETS " in
                    *" $1 "*) DATA=$1 ;;
                    *) usage_error "unknown data set '$1'; there are: $DATA_SETS" ;;
                esac ;;
        esac
        shift
    done
    [ -n "$DATA" ] || usage_error "which data set? There are: $DATA_SETS"
    case " ${FLAGS[*]-} " in *" --chinchilla "*)
        [ -z "$ITERATIONS" ] || usage_error "--chinchilla and --iterations $ITERATIONS exclude each other" ;;
    esac
}

set_option() {
    case $1 in
        --device)
            [[ $2 =~ ^(cpu|cuda|cuda:[0-9]+)$ ]] || usage_error "--device takes cpu, cuda or cuda:N, got '$2'"
            DEVICE=$2 ;;
        --mixed_precision)
            [[ $2 =~ ^(no|fp16|bf16)$ ]] || usage_error "--mixed_precision takes fp16 or bf16, got '$2'"
            FLAGS+=("$1" "$2") ;;
        *)
            [[ $2 =~ ^[1-9][0-9]*$ ]] || usage_error "$1 takes a whole number above 0, got '$2'"
            case $1 in
                --batch_size) BATCH_SIZE=$2 ;;
                --iterations) ITERATIONS=$2 ;;
                --num_gpus) NUM_GPUS=$2 ;;
                --num_processes) NUM_PROCESSES=$2 ;;
            esac ;;
    esac
}

count_gpus() {
    case ${CUDA_VISIBLE_DEVICES-all} in "" | -1) echo 0; return ;; esac
    { nvidia-smi -L 2>/dev/null || true; } | grep -c '^GPU ' || true
}

choose_device() {
    local gpus
    gpus=$(count_gpus)
    if [ -z "$DEVICE" ]; then
        if [ "$gpus" -gt 0 ] || [ -n "$NUM_GPUS" ]; then DEVICE=cuda; else DEVICE=cpu; fi
    fi
    if [ -n "$NUM_GPUS" ] && [ "$DEVICE" = cpu ]; then
        usage_error "--num_gpus $NUM_GPUS does not go with --device cpu; for a CPU there is --num_processes"
    elif [ -n "$NUM_PROCESSES" ] && [ "$DEVICE" != cpu ]; then
        usage_error "--num_processes $NUM_PROCESSES is for a CPU, this is for $DEVICE: --num_gpus, or --device cpu"
    fi
    PROCESSES=${NUM_GPUS:-${NUM_PROCESSES:-1}}
    if [ "$PROCESSES" -gt 1 ] && [[ $DEVICE = cuda:* ]]; then
        usage_error "--num_gpus $NUM_GPUS does not go with --device $DEVICE: each process has a GPU of its own"
    elif [ "$DEVICE" != cpu ] && [ "$gpus" -eq 0 ]; then
        fail "there is no GPU to train on (nvidia-smi lists none); --device cpu trains without one"
    elif [ "${NUM_GPUS:-1}" -gt "$gpus" ] && [ "$DEVICE" != cpu ]; then
        fail "--num_gpus $NUM_GPUS: nvidia-smi lists only $gpus"
    fi
}

# Sets EXTRAS: the optional dependencies of this job.
choose_extras() {
    local cuda
    EXTRAS=(plot)
    case " ${FLAGS[*]-} $DATA " in *" --log_wandb "* | *" owt "*) EXTRAS=(train) ;; esac
    if [ -n "$SMOKE" ]; then EXTRAS=(); fi
    if [ "$DEVICE" = cpu ]; then EXTRAS+=(cpu); else EXTRAS+=(triton); fi
    case " ${FLAGS[*]-} " in *" bf16 "*) EXTRAS+=(bf16) ;; esac
    if [ "$PROCESSES" -gt 1 ]; then EXTRAS+=(mpi); fi
    if [ "$DEVICE" != cpu ] && ! "$PYTHON" -c 'import cupy' 2>/dev/null; then
        cuda=$(cuda_extra)
        EXTRAS+=("$cuda")
    fi
}

# The extra with the CuPy that this machine's driver can run.
cuda_extra() {
    local pattern='CUDA [A-Za-z ]*Version: *([0-9]+)' version=unknown
    if [[ $(nvidia-smi) =~ $pattern ]]; then version=${BASH_REMATCH[1]}; fi
    case $version in
        12) echo cuda12 ;;
        1[3-9] | [2-9][0-9]) echo cuda13 ;;
        *) fail "CuPy needs a driver for CUDA 12 or newer, nvidia-smi shows CUDA $version here" ;;
    esac
}

is_prepared() {
    [ -f "$1/train.bin" ] && [ -f "$1/val.bin" ] && [ -f "$1/tokenizer.json" ]
}

# Sets FOLDER: where the tokens are, or will be.
choose_folder() {
    FOLDER=data/$DATA
    if [ "$DATA" = owt ] && ! is_prepared data/owt; then FOLDER=data/openwebtext; fi
}

prepare_data() {
    if is_prepared "$FOLDER"; then
        say "$FOLDER exists"
    else
        say "preparing $FOLDER"
        "$PYTHON" "prepare_data/prepare_$DATA.py" --path_to_save "$FOLDER"
    fi
}

# On new AMD chips an older OpenBLAS selects AVX2 kernels, although the AVX-512 ones are faster.
choose_blas_kernels() {
    local flags flag
    [ "${MYTORCH_TUNE:-1}" != 0 ] && [ -z "${OPENBLAS_CORETYPE:-}" ] && [ -r /proc/cpuinfo ] || return 0
    flags=" $(grep -m 1 '^flags' /proc/cpuinfo || true) "
    for flag in avx512f avx512bw avx512dq avx512vl; do
        case $flags in *" $flag "*) ;; *) return 0 ;; esac
    done
    export OPENBLAS_CORETYPE=SkylakeX
}

# Sets PRESET, the options of train_gpt2.py: nanoGPT's recipes.
choose_preset() {
    local accumulation=1 min_lr=1e-4 warmup=100 beta2=0.99 eval_interval=250
    local model context batch iterations dropout max_lr eval_iterations
    case $DATA-$DEVICE in
        shakespeare-cpu)
            model=nano context=64 batch=12 iterations=2000 dropout=0.0 max_lr=1e-3 eval_iterations=20 ;;
        shakespeare-*)
            model=small context=256 batch=64 iterations=5000 dropout=0.2 max_lr=1e-3 eval_iterations=200 ;;
        owt-*)
            model=base context=1024 batch=12 iterations=600000 dropout=0.0 max_lr=6e-4 eval_iterations=200
            accumulation=$((40 / PROCESSES)) min_lr=6e-5 warmup=2000 beta2=0.95 eval_interval=1000
            [ $((40 % PROCESSES)) = 0 ] || usage_error "$PROCESSES processes can't divide 40 accumulation steps" ;;
    esac
    if [ -n "$SMOKE" ]; then
        accumulation=1
        if [ "$DEVICE" = cpu ]; then batch=1; fi
    fi
    iterations=${ITERATIONS:-$iterations}
    if [ "$warmup" -ge "$iterations" ]; then warmup=$((iterations / 10)); fi
    if [ "$eval_interval" -gt "$iterations" ]; then eval_interval=$iterations; fi
    PRESET=(
        --model_size "$model" --context_length "$context" --dropout_p "$dropout" --train_iterations "$iterations"
        --batch_size "${BATCH_SIZE:-$batch}" --gradient_accumulation_steps "$accumulation"
        --max_lr "$max_lr" --min_lr "$min_lr" --warmup_steps "$warmup"
        --beta1 0.9 --beta2 "$beta2" --weight_decay 0.1 --max_grad_norm 1.0
        --eval_interval "$eval_interval" --eval_iterations "$eval_iterations" --checkpoint_iterations "$eval_interval"
    )
}

parse_arguments "$@"
choose_device
choose_preset

cd "$ROOT"
choose_folder
if [ "$DATA" = owt ]; then PROJECT=gpt2-base-owt; else PROJECT=gpt2-small-$DATA; fi
OUTPUT=work_dir/$PROJECT
if [ -n "$SMOKE" ]; then PROGRAM=(-m benchmarks.smoke); else PROGRAM=(train_gpt2.py); fi
TRAIN=(
    "${PROGRAM[@]}" --project_name "$PROJECT" --working_directory work_dir --path_to_data "$FOLDER"
    --device "$DEVICE" "${PRESET[@]}" ${FLAGS[@]+"${FLAGS[@]}"}
)
if [ -n "$RESUME" ]; then
    [ -d "$OUTPUT" ] || fail "--resume: there is no $OUTPUT to continue from"
    TRAIN+=(--resume_from_checkpoint "$OUTPUT")
fi

use_environment
choose_extras
install_package "${EXTRAS[@]}"
if [ -z "$SMOKE" ]; then prepare_data; fi

choose_blas_kernels
if [ "$PROCESSES" -gt 1 ]; then
    if [ "$DEVICE" = cpu ]; then LAUNCH=(--num_processes "$PROCESSES" --cpu); else LAUNCH=(--num_gpus "$PROCESSES"); fi
    TRAIN=(-m mytorch.distributed.launch "${LAUNCH[@]}" "${TRAIN[@]}")
fi
say "training on $DEVICE: python ${TRAIN[*]}"
MYTORCH_SAMPLE_HINT=0 "$PYTHON" "${TRAIN[@]}"
if [ -n "$SMOKE" ]; then exit; fi

if [ "$DATA" = owt ]; then PROMPT="Once upon a time"; else PROMPT=ROMEO:; fi
SAMPLE=(inference_gpt2.py "$OUTPUT/" --device "$DEVICE" --prompt "$PROMPT" --max_new_tokens 300)
say "a sample from $OUTPUT"
"$PYTHON" "${SAMPLE[@]}"

for picture in "$OUTPUT"/*.png; do
    if [ -f "$picture" ]; then say "the loss curve: $picture"; fi
done
SHOWN_PYTHON=${PYTHON#"$ROOT"/}
if [ -n "${VIRTUAL_ENV:-${CONDA_PREFIX:-}}" ]; then SHOWN_PYTHON=python; fi
say "more of it:"
if [ "$START" != "$ROOT" ]; then printf 'cd %q\n' "$ROOT"; fi
printf '%s' "$SHOWN_PYTHON"
printf ' %q' "${SAMPLE[@]}"
printf '\n'
