// Package binary holds the size of the curfew binary and the time of its start to what is
// written down.
package binary
