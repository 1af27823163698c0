package main

import (
	"os/signal"
	"syscall"
)

// beGrandchild lives until it is killed.
func beGrandchild() {
	signal.Ignore(syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT)
	select {}
}
