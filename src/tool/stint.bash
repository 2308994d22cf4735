# SPDX-License-Identifier: MIT
# Completion of stint for bash. The command itself says which commands and options there are.
_stint() {
    local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} program=$1
    local command=${COMP_WORDS[1]} words

    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        words="--help --version $("$program" --help 2>/dev/null | sed -n 's/^  \([a-z]*\)  .*/\1/p')"
        mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
        return
    fi
    case $previous in
    --full) words="admit refuse replace" ;;
    --by) words="used refused policy" ;;
    --time) words="clf epoch none" ;;
    --format) words="table json" ;;
    *) words= ;;
    esac
    if [ -z "$words" ]; then
        case $word in
        -*) words=$("$program" "$command" --help 2>/dev/null |
            sed -n 's/^  \(-[a-z], \)\{0,1\}\(--[a-z-]*\).*/\2/p') ;;
        *)
            mapfile -t COMPREPLY < <(compgen -f -- "$word")
            return
            ;;
        esac
    fi
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
}
complete -o filenames -F _stint stint
