// Package runtime is the base of every operation: the process and its host, one request, its
// caller, the location of the state, and the configuration, settings and prices in force.
package runtime
