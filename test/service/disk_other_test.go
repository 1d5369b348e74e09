//go:build !linux

package service_test

import "testing"

func small(t *testing.T, _ int) string {
	t.Helper()
	t.Skip("file systems of a test's own are made on Linux")
	return ""
}

func fill(t *testing.T, _ string) string {
	t.Helper()
	return ""
}
