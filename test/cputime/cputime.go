// Package cputime measures work in CPU time, which is independent of other processes.
package cputime

import (
	"syscall"
	"testing"
	"time"
)

// Now returns the CPU time used by all threads of this process.
func Now(tb testing.TB) time.Duration {
	tb.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
