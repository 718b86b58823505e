#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Laws of ./quickstart's set-up, on a pretended machine: it installs exactly what is missing, after
# saying what and why; nothing where nothing is missing; and it says what to do where it cannot.
. "${srcdir:=.}/tests/tap.sh"

machine=$(mktemp -d) || exit 1
trap 'rm -rf "$machine"' EXIT
mkdir "$machine/bin" "$machine/tree"
cp "$srcdir/quickstart" "$machine/tree/quickstart"

stub() { # NAME BODY
  printf '#!/bin/sh\n%s\n' "$2" > "$machine/bin/$1"
  chmod +x "$machine/bin/$1"
}

# A machine with every tool, where every program compiles, and whose user is root.
fresh() {
  rm -f "$machine"/bin/* "$machine/log"
  for tool in sh cat sed dirname grep env; do ln -s "$(command -v $tool)" "$machine/bin/$tool"; done
  for tool in make autoconf automake gnuplot; do stub $tool 'exit 0'; done
  stub cc 'exit 0'
  stub id 'echo 0'
  stub apt-get "echo \"apt-get \$*\" >> $machine/log"
}

# Runs quickstart deps there; $said has what it printed, $log what was run to install.
deps() {
  said=$(cd "$machine/tree" && PATH=$machine/bin CC=cc CXX=g++ NVCC=nvcc JANSSON_LIBS="" sh ./quickstart deps 2>&1)
  status=$?
  log=$(cat "$machine/log" 2> /dev/null)
}

says() { # WORDS NAME
  case $said in *"$1"*) ok 0 "$2" ;; *) is "$said" "$1" "$2" ;; esac
}

# The toolkit of the machine that runs this test must not count.
nvcc_outside=/usr/local/cuda/bin/nvcc
[ ! -x $nvcc_outside ] || sed -i "s|$nvcc_outside|/nowhere/nvcc|" "$machine/tree/quickstart"

fresh
deps
is "$status:$said:$log" "0::" "nothing missing: nothing said, nothing installed"

fresh
rm "$machine/bin/gnuplot"
deps
is "$status" 0 "gnuplot missing: set up"
says "missing: gnuplot-nox (draws the figures of a report)" "it says what and why"
is "$log" "apt-get -q update
apt-get -q install -y --no-install-recommends gnuplot-nox" "it installs that and nothing else"

fresh
stub cc 'exit 1'
rm "$machine/bin/make" "$machine/bin/automake" "$machine/bin/autoconf"
deps
is "$(echo "$log" | sed -n 2p)" "apt-get -q install -y --no-install-recommends gcc libc6-dev make \
autoconf automake libjansson-dev" "a bare machine gets compiler, make, Autotools and jansson"

fresh
rm "$machine/bin/automake"
touch "$machine/tree/configure"
chmod +x "$machine/tree/configure"
deps
is "$said:$log" ":" "a release, which has its configure, needs no Autotools"
rm "$machine/tree/configure"

fresh
stub nvcc 'exit 0'
deps
is "$(echo "$log" | sed -n 2p)" "apt-get -q install -y --no-install-recommends g++" \
  "a CUDA toolkit needs g++"

fresh
stub nvidia-smi 'echo "GPU 0: some card"'
deps
says "a GPU is here but no CUDA toolkit" "a GPU without toolkit is mentioned"
is "$log" "" "but no toolkit is installed"

fresh
rm "$machine/bin/gnuplot"
stub id 'echo 1000'
deps
is "$status:$log" "1:" "neither root nor sudo: stops"
says "ask an administrator to run: apt-get install gnuplot-nox" "and says what to run"

stub sudo 'exec "$@"'
deps
is "$status:$(echo "$log" | wc -l | tr -d ' ')" "0:2" "a user with sudo installs through it"

fresh
rm "$machine/bin/gnuplot"
stub apt-get 'exit 100'
deps
is "$status" 1 "offline with something missing: stops"
says "once online: apt-get install gnuplot-nox" "and says what to run"

fresh
rm "$machine/bin/gnuplot" "$machine/bin/apt-get"
deps
is "$status" 1 "another distribution: stops"
says "no apt-get here: install what gnuplot-nox are called" "and names what is missing"
done_testing
