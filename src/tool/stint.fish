# SPDX-License-Identifier: MIT
# Completion of stint for fish. The command itself says what may stand where.
function __stint_complete
    set -l words (commandline -opc) (commandline -ct)
    set -l said ($words[1] complete (math (count $words) - 2) $words[2..-1] 2>/dev/null)
    if test $status -eq 0
        printf '%s\n' $said
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c stint -f -a '(__stint_complete)'
