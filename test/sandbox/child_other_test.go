//go:build !linux

package sandbox_test

// childVariable is for Linux, where the kernel ends a child with its parent.
const childVariable = "CURFEW_SANDBOX_CHILD"

func child() int { return 1 }
