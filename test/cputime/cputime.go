// Package cputime measures work by the processors' time, which other processes do not change.
package cputime

import (
	"syscall"
	"testing"
	"time"
)

// Now returns the processors' time that this process has used, in all of its threads.
func Now(tb testing.TB) time.Duration {
	tb.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
