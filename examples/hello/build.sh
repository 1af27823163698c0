#!/bin/sh
# Builds the example app in every shape that the demo and the tests deploy, into
# bin/ beside this file. Arguments name some of them; none means all.
set -eu
cd "$(dirname "$0")"

build() { # name version behaviour
	case " $wanted " in "  " | *" $1 "*) ;; *) return 0 ;; esac
	CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.version=$2 -X main.behave=$3" -o "bin/$1" .
}

wanted="$*"
build hello v1 normal
build hello-v2 v2 normal
build hello-v3 v3 normal
build hello-never-healthy v4 never-healthy
build hello-hang v5 hang
build hello-crash v6 crash
build hello-ignore-term v7 ignore-term
