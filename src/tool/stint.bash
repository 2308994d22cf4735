# SPDX-License-Identifier: MIT
# Completion of stint for bash. The command itself says what may stand where.
_stint() {
    local - IFS=$'\n' word words
    set -f # a name may be "*"

    COMPREPLY=()
    if words=$("$1" complete $((COMP_CWORD - 1)) "${COMP_WORDS[@]:1}" 2>/dev/null); then
        for word in $words; do
            COMPREPLY+=("$(printf %q "$word")")
        done
    else
        compopt -o filenames 2>/dev/null
        COMPREPLY=($(compgen -f -- "${COMP_WORDS[COMP_CWORD]}"))
    fi
}
complete -F _stint stint
