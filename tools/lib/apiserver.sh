# shellcheck shell=bash
# How the scripts start and end `godwit apiserver`. Sourced; $GODWIT_BIN is the program.

# apiserver_start DIR ARGUMENT…: in the background; returns when it is ready, with its pid in $apiserver and DIR/kubeconfig written.
apiserver_start() {
  local dir=$1 deadline=$((SECONDS + 30))
  shift
  rm -f "$dir/kubeconfig" # the server writes it when it is ready
  # The kernel ends the server also when the script is killed and cannot do so itself.
  setpriv --pdeathsig KILL "$GODWIT_BIN" apiserver --port 0 --kubeconfig-out "$dir/kubeconfig" "$@" >>"$dir/apiserver.log" 2>&1 </dev/null &
  apiserver=$!
  until [[ -s $dir/kubeconfig ]]; do
    if ! kill -0 "$apiserver" 2>/dev/null || ((SECONDS >= deadline)); then
      echo "godwit apiserver does not become ready; its log:" >&2
      tail -n 20 "$dir/apiserver.log" >&2
      return 1
    fi
    sleep 0.02
  done
}

# apiserver_stop [SIGNAL]: ends it and waits for its end.
apiserver_stop() {
  [[ -n ${apiserver:-} ]] || return 0
  kill "-${1:-TERM}" "$apiserver" 2>/dev/null || true
  wait "$apiserver" 2>/dev/null || true
  apiserver=
}
