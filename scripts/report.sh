# Sourced by verify-metal.sh and verify-rocm.sh: parts, each of which is run whatever became of the others, and a report of them.
# The shell has `set -uo pipefail`, without `-e`.

# A folder for the logs, and the file of the report.
begin_report() {
    report_folder=$1
    report=$2
    failed=0
    not_run=0
    rows=()
    # What every line of a part begins with.
    line_label=
    mkdir -p "$report_folder" "$(dirname "$report")"
    : >"$report_folder/parts.md"
}

# Labels lines, also those that have the label already.
labelled() {
    if [[ -z $line_label ]]; then cat; else sed -u "s/^\($line_label\)\?/$line_label/"; fi
}

row() { rows+=("| $1 | $2 | ${3-} |"); }

# One part: a name, and the command that proves it. Exit status 77 says that it was not run; a line that begins with NOT RUN, that
# some of it was not.
part() {
    local name=$1 log began=$SECONDS outcome=passed status
    shift
    log=$report_folder/$((${#rows[@]} + 1)).log
    printf '\n=== %s\n' "$name"
    "$@" 2>&1 | labelled | tee "$log"
    status=${PIPESTATUS[0]}
    if [[ $status == 77 ]]; then
        outcome=$(grep -m 1 -o 'NOT RUN.*' "$log" || echo 'NOT RUN')
        not_run=$((not_run + 1))
    elif [[ $status != 0 ]]; then
        outcome="FAILED (exit status $status)"
        failed=$((failed + 1))
        printf '=== %s: FAILED\n' "$name" >&2
    elif grep -q "^${line_label}NOT RUN" "$log"; then
        # The part says which of it.
        outcome='passed, in part NOT RUN'
        not_run=$((not_run + 1))
    fi
    row "$name" "$outcome" "$((SECONDS - began)) s"
    {
        printf '\n## %s: %s\n\n    %s\n\n```text\n' "$name" "$outcome" "$*"
        # The whole log of what failed; of the rest, what it says at the end.
        if [[ $outcome == FAILED* ]]; then cat "$log"; else tail -n 60 "$log"; fi
        printf '```\n'
    } >>"$report_folder/parts.md"
}

lacking() {
    printf '\n=== %s: NOT RUN (%s)\n' "$1" "$2"
    row "$1" "NOT RUN: $2"
    not_run=$((not_run + 1))
}

# Tests of the library, by their names.
tests() {
    local names=()
    for name in "$@"; do names+=("--test=$name"); done
    cargo test --release --locked -p ssm-update "${names[@]}" -- --nocapture
}

# The ports that are under test alone, on every list of cases.
parity() { SSM_UPDATE_ONLY_PORT=$1 tests cases conformance properties rounding; }

# Writes the report: a title, and the facts that this machine has beyond the common ones, a line each. The status is 1 where a
# part failed.
end_report() {
    local title=$1 name
    name=$(basename "$0" .sh)
    shift
    {
        printf '# %s\n\n' "$title"
        printf -- '- commit: %s%s\n' "$(git rev-parse --short HEAD 2>/dev/null || echo unknown)" \
            "$(git diff --quiet HEAD 2>/dev/null || echo ', with changes')"
        printf -- '- %s\n' "$@" "$(rustc --version)"
        printf '\n| part | outcome | time |\n|---|---|---|\n'
        printf '%s\n' "${rows[@]}"
        cat "$report_folder/parts.md"
    } >"$report"
    printf '\n'
    printf '%s\n' "${rows[@]}"
    printf '\n%s: %d parts, %d failed, %d not run or not wholly; report: %s\n' \
        "$name" "${#rows[@]}" "$failed" "$not_run" "$report"
    [[ $failed == 0 ]]
}
