// Package binary checks the size and the start time of the curfew binary against their documented
// limits.
package binary
