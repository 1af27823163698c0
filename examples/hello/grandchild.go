package main

import (
	"os/signal"
	"syscall"
	"time"
)

// beGrandchild lives until it is killed.
func beGrandchild() {
	signal.Ignore(syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT)
	for { // an empty select would count as a deadlock and end it
		time.Sleep(time.Hour)
	}
}
