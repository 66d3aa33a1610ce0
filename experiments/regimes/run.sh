#!/usr/bin/env bash
# The pictures of inferred regimes in docs/images: two series with a break of known date. About twenty minutes on a core.
#
#   experiments/regimes/run.sh        takes no options; PYTHON=/path/to/python names another Python than .venv/bin/python
set -euo pipefail
case "${1:-}" in
-h | --help)
    sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0"
    exit
    ;;
?*)
    echo "error: experiments/regimes/run.sh takes no options, got $1; experiments/regimes/run.sh --help says what it does" >&2
    exit 2
    ;;
esac
cd "$(dirname "$0")/.."
python="${PYTHON:-.venv/bin/python}"
[ -x "$(command -v "$python")" ] || python=$(command -v python3 || command -v python) || {
    echo "error: no Python in .venv or on the path; name one: PYTHON=/path/to/python $0" >&2
    exit 2
}

draw() { # dataset series components options... -- marks...
    local run="outputs/regimes/$1" dataset="$1" series="$2" components="$3" options=()
    shift 3
    while [ "$1" != "--" ]; do
        options+=("$1")
        shift
    done
    shift
    if [ ! -e "$run/predictor" ]; then
        "$python" train.py rsgls-issm --preset none --dataset "$dataset" --components "$components" --train_length 0 \
            --objective crps --resampling_gradient stop-gradient --proposal bootstrap --recurrence none \
            --persistence 0.95 --switch_dim 4 --num_bases 10 --num_particles 10 --linear_epochs 40 --max_epochs 60 \
            --batch_size 16 --num_batches_per_epoch 8 --gradient_length 48 --network_learning_rate 1e-2 \
            --gradient_clip_val 1 --history_length 1344 --threads 1 --seed 0 ${options[@]+"${options[@]}"} \
            --output "$run"
    fi
    "$python" evaluate.py "$run" --baselines none --inspect "$series" --plot_series 1 --threads 1 \
        --marks "$@"
    cp "$run/plots/regimes.png" "docs/images/regimes-$dataset.png"
}

draw taxi-blizzard r01_c03_taxi0 damped_level+half_hour_of_day+day_of_week --context_length 672 -- \
    2015-12-25=Christmas "2015-12-31=New Year's Eve" 2016-01-23=blizzard
draw eia-2020 NYIS-ZONJ damped_level+hour_of_day+day_of_week -- 2020-03-16=closures
