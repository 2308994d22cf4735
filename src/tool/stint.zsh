#compdef stint
# SPDX-License-Identifier: MIT
# Completion of stint for zsh. The command itself says what may stand where.
local said
if said=$("${(Q)words[1]}" complete $((CURRENT - 2)) "${(@Q)words[2,-1]}" 2>/dev/null); then
    compadd -- ${(f)said}
else
    _files
fi
