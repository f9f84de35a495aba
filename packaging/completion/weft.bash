# Completion of weft, weftd and weft-aggregator for bash. Commands, options and the values that options take are read
# from --help of the program itself, so what completes is what the installed version knows.

# Prints the words of a program's help: its commands, or the options of a command.
_weft_words() {
  local what=$1
  shift
  "$@" --help 2>/dev/null | case $what in
    commands) sed -n '/^Subcommands:$/,/^$/s/^  \([a-z][a-z-]*\).*/\1/p' ;;
    options) sed -n 's/^  \(-[-a-zA-Z,]*\).*/\1/p' | tr ',' '\n' ;;
  esac
}

# Prints the values in {a,b} behind an option, or FILE or DIR.
_weft_values() {
  local option=$1
  shift
  "$@" --help 2>/dev/null | sed -n -E "s/^  (-[-a-zA-Z]*,)?${option}[ :](.*)/\2/p" |
    sed -n -E -e 's/^[^{ ]*\{([^}]*)\}.*/\1/p' -e 's/^(FILE|DIR).*/\1/p' | tr ',' '\n'
}

_weft() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} program=${COMP_WORDS[0]}
  local -a asked=("$program")
  COMPREPLY=()
  if [[ ${program##*/} == weft ]]; then
    if ((COMP_CWORD == 1)); then
      mapfile -t COMPREPLY < <(compgen -W "$(_weft_words commands "$program") help --help --version" -- "$word")
      return
    fi
    if [[ ${COMP_WORDS[1]} == help ]]; then
      mapfile -t COMPREPLY < <(compgen -W "$(_weft_words commands "$program")" -- "$word")
      return
    fi
    asked+=("${COMP_WORDS[1]}")
  fi
  if [[ $before == -* && $word != -* ]]; then
    local values
    values=$(_weft_values "$before" "${asked[@]}")
    if [[ ${asked[1]-} == findings && $before == --kind ]]; then
      values="link_loss link_delay link_ecn link_down rnic_unreachable host_silent host_overloaded cannot_measure"
    fi
    case $values in
      FILE) mapfile -t COMPREPLY < <(compgen -f -- "$word") ;;
      DIR) mapfile -t COMPREPLY < <(compgen -d -- "$word") ;;
      *) mapfile -t COMPREPLY < <(compgen -W "$values" -- "$word") ;;
    esac
    # --config and its like name no type: files are as good a guess as any.
    if [[ -z $values ]]; then
      case $before in
        --config | --topology | --store | --key-file) mapfile -t COMPREPLY < <(compgen -f -- "$word") ;;
      esac
    fi
    return
  fi
  [[ $word == -* ]] || return 0
  mapfile -t COMPREPLY < <(compgen -W "$(_weft_words options "${asked[@]}")" -- "$word")
}

complete -F _weft weft weftd weft-aggregator
